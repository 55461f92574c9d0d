// Products by one matrix that many batches share, which is packed once per mini-batch.
//
// A library packs both factors in every call, which few rows do not pay for.
#pragma once

#include "matrix.h"

class PackedMatrix {
 public:
  // Packs w (k, n), or its transpose.
  void pack(const Matrix& w, bool transposed = false);
  // c = start + a w, for a (m, k) and c (m, n).
  enum class Start { zeros, row, itself };
  void multiply(const Matrix& a, const Matrix& c) const { run(a, c, Start::zeros, nullptr); }
  void add_product(const Matrix& a, const Matrix& c) const { run(a, c, Start::itself, nullptr); }
  void multiply(const Matrix& a, const Matrix& c, const float* row) const {  // every row from `row`
    run(a, c, Start::row, row);
  }

 private:
  void run(const Matrix& a, const Matrix& c, Start start, const float* row) const;

  Buffer memory_;
  Index rows_ = 0, columns_ = 0;
  float* panels_ = nullptr;
};
