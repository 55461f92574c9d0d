#include "matrix.h"

#include <cstring>

namespace {

using OneDnn = int (*)(char, char, Index, Index, Index, float, const float*, Index, const float*,
                       Index, float, float*, Index);
using OpenBlas = void (*)(const char*, const char*, const Index*, const Index*, const Index*,
                          const float*, const float*, const Index*, const float*, const Index*,
                          const float*, float*, const Index*);

OneDnn onednn = nullptr;
OpenBlas openblas = nullptr;

// C (m, n) = A (m, k) B (k, n), all row-major; "N" or "T" for each factor.
void call_library(char form_a, char form_b, Index m, Index n, Index k, const Matrix& a,
                  const Matrix& b, const Matrix& c, bool adds) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!adds) fill_zeros(c);
    return;
  }
  const float one = 1, beta = adds ? 1 : 0;
  if (onednn) {
    onednn(form_a, form_b, m, n, k, one, a.at, a.stride, b.at, b.stride, beta, c.at, c.stride);
  } else {  // column-major C^T = B^T A^T
    openblas(&form_b, &form_a, &n, &m, &k, &one, b.at, &b.stride, a.at, &a.stride, &beta, c.at,
             &c.stride);
  }
}

}  // namespace

void set_libraries(void* onednn_sgemm, void* openblas_sgemm) {
  onednn = reinterpret_cast<OneDnn>(onednn_sgemm);
  openblas = reinterpret_cast<OpenBlas>(openblas_sgemm);
}

void multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool adds) {
  call_library('N', 'N', a.rows, b.columns, a.columns, a, b, c, adds);
}

void multiply_transposed(const Matrix& a, const Matrix& b, const Matrix& c, bool adds) {
  call_library('N', 'T', a.rows, b.rows, a.columns, a, b, c, adds);
}

void multiply_outer(const Matrix& a, const Matrix& b, const Matrix& c) {
  call_library('T', 'N', a.columns, b.columns, a.rows, a, b, c, false);
}

void fill_zeros(const Matrix& x) {
  for (Index r = 0; r < x.rows; ++r) std::memset(x.row(r), 0, x.columns * sizeof(float));
}

void fill_rows(const Matrix& x, const float* row) {
  for (Index r = 0; r < x.rows; ++r) std::memcpy(x.row(r), row, x.columns * sizeof(float));
}

void copy(const Matrix& from, const Matrix& to) {
  for (Index r = 0; r < from.rows; ++r)
    std::memcpy(to.row(r), from.row(r), from.columns * sizeof(float));
}

void gather_rows(const Matrix& from, const std::int32_t* rows, const Matrix& to) {
  for (Index r = 0; r < to.rows; ++r)
    std::memcpy(to.row(r), from.row(rows[r]), from.columns * sizeof(float));
}

void sum_rows(const Matrix& x, float* sum, bool adds) {
  if (!adds) std::fill_n(sum, x.columns, 0.0f);
  for (Index r = 0; r < x.rows; ++r) {
    const float* row = x.row(r);
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) sum[j] += row[j];
  }
}
