// Matrices in reused memory, and their products by oneDNN or OpenBLAS.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

using Index = std::int64_t;
using Ids = std::vector<std::int32_t>;

// Row-major part of an array; `stride` is the number of floats from one row to the next.
struct Matrix {
  float* at = nullptr;
  Index rows = 0, columns = 0, stride = 0;

  float* row(Index r) const { return at + r * stride; }
  Matrix rows_from(Index first, Index n) const { return {row(first), n, columns, stride}; }
  Matrix columns_from(Index first, Index n) const { return {at + first, rows, n, stride}; }
};

// Memory that grows if necessary and serves every mini-batch; its content is arbitrary.
class Buffer {
 public:
  Matrix take(Index rows, Index columns) {
    const Index size = std::max<Index>(rows * columns, 1);
    if (size > size_) {
      size_ = (size + 15) / 16 * 16;
      memory_.reset(static_cast<float*>(std::aligned_alloc(64, size_ * sizeof(float))));
      if (!memory_) throw std::bad_alloc();
    }
    return {memory_.get(), rows, columns, columns};
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  Index size_ = 0;
};

// Addresses of dnnl_sgemm, or null, and of Fortran's sgemm, which is used without the former. Sizes
// are 64-bit; a library of 32 bits reads their lower halves.
void set_libraries(void* onednn_sgemm, void* openblas_sgemm);

// C = A B, A B^T or A^T B, or this added to C.
void multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool adds = false);
void multiply_transposed(const Matrix& a, const Matrix& b, const Matrix& c, bool adds = false);
void multiply_outer(const Matrix& a, const Matrix& b, const Matrix& c);

void fill_zeros(const Matrix& x);
void fill_rows(const Matrix& x, const float* row);  // every row a copy
void copy(const Matrix& from, const Matrix& to);    // of equal shape
// to[r] = from[rows[r]] for all rows of `to`.
void gather_rows(const Matrix& from, const std::int32_t* rows, const Matrix& to);
void sum_rows(const Matrix& x, float* sum, bool adds = false);
