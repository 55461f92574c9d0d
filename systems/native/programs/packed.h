// Products by one matrix that many batches share, which is packed again after each update.
//
// A library packs both factors in every call, which few rows do not pay for.
#pragma once

#include "matrix.h"

class PackedMatrix {
 public:
  // Packs w (k, n), or its transpose.
  void pack(const Matrix& w, bool transposed = false);
  // c += a w, for a (m, k) and c (m, n).
  void add_product(const Matrix& a, const Matrix& c) const { run(a, c, Start::itself, nullptr); }
  // c = a w, plus `row` in every row, unless it is null.
  void multiply(const Matrix& a, const Matrix& c, const float* row) const {
    run(a, c, row ? Start::row : Start::zeros, row);
  }

 private:
  enum class Start { zeros, row, itself };
  void run(const Matrix& a, const Matrix& c, Start start, const float* row) const;
  // Computes some columns of c.
  void run_group(const Matrix& a, const Matrix& c, Start start, const float* row,
                 Index first) const;

  Buffer memory_;
  Index rows_ = 0, columns_ = 0;
  float* panels_ = nullptr;
};
