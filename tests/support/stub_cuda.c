// A library in place of the driver's libcuda.so.1: it runs nothing, and writes each launch as a line
// of JSON to the file STUB_LOG: grid, threads, shared memory, and the first STUB_ARGUMENTS arguments
// as 64-bit words.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define OK { return CUDA_SUCCESS; }

CUresult cuInit(unsigned flags) OK
CUresult cuDriverGetVersion(int *version) { *version = 13000; OK }
CUresult cuDeviceGetCount(int *n) { *n = 1; OK }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = 0; OK }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  *value = which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 227 * 1024 : 1;
  OK
}
CUresult cuCtxGetCurrent(CUcontext *context) { *context = (CUcontext)1; OK }
CUresult cuCtxSetCurrent(CUcontext context) OK
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; OK }
CUresult cuCtxGetLimit(size_t *value, CUlimit which) { *value = 0; OK }
CUresult cuCtxSetLimit(CUlimit which, size_t value) OK
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = (CUcontext)1; OK }
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = (CUmodule)1;
  return getenv("STUB_FULL") ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) OK
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)1;
  OK
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
  *value = which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 64 : which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  OK
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) OK
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) OK
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr pointer) {
  *(CUdeviceptr *)value = pointer;
  OK
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  OK
}
CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction function, const CUlaunchConfig *config) {
  *n = 1;
  OK
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "another error";
  OK
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  FILE *log = fopen(getenv("STUB_LOG"), "a");
  fprintf(log, "{\"grid\": %u, \"threads\": %u, \"shared\": %u, \"arguments\": [",
          config->gridDimX, config->blockDimX, config->sharedMemBytes);
  for (int i = 0; i < atoi(getenv("STUB_ARGUMENTS")); i++)
    fprintf(log, "%s%llu", i ? ", " : "", *(unsigned long long *)arguments[i]);
  fprintf(log, "]}\n");
  fclose(log);
  OK
}
