// Addresses of the libraries' matmuls, which Python finds.
#pragma once

#include <cstdint>

struct Libraries {
  void* openblas;  // Fortran's sgemm; sizes are read as 64-bit, or as their lower half
  void* onednn;    // dnnl_sgemm, or null
  std::int64_t onednn_rows;
};

void set_libraries(const Libraries& libraries);
