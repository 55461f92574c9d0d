#include "packed.h"

#include <omp.h>

#include <array>
#include <cstring>
#include <utility>

namespace {

// Registers: BLOCK rows of two vectors are summed, with two more vectors of the packed matrix.
#ifdef __AVX512F__
constexpr Index LANES = 16, BLOCK = 12;
#else
constexpr Index LANES = 8, BLOCK = 6;
#endif
constexpr Index WIDTH = 2 * LANES;  // columns of a panel
typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

const Vector& as_vector(const float* at) { return *reinterpret_cast<const Vector*>(at); }
Vector& as_vector(float* at) { return *reinterpret_cast<Vector*>(at); }

// c (R, WIDTH) = start + a (R, k) panel (k, WIDTH), where row r of the start is at r * stride.
template <Index R>
void multiply_block(const float* a, Index a_stride, const float* panel, Index k, const float* start,
                    Index start_stride, float* c, Index c_stride) {
  Vector sums[R][2];
#pragma GCC unroll 12
  for (Index r = 0; r < R; ++r) {
    sums[r][0] = as_vector(start + r * start_stride);
    sums[r][1] = as_vector(start + r * start_stride + LANES);
  }
  for (Index j = 0; j < k; ++j, panel += WIDTH) {
    const Vector first = as_vector(panel), second = as_vector(panel + LANES);
#pragma GCC unroll 12
    for (Index r = 0; r < R; ++r) {
      const float x = a[r * a_stride + j];
      sums[r][0] += x * first;
      sums[r][1] += x * second;
    }
  }
#pragma GCC unroll 12
  for (Index r = 0; r < R; ++r) {
    as_vector(c + r * c_stride) = sums[r][0];
    as_vector(c + r * c_stride + LANES) = sums[r][1];
  }
}

using Block = decltype(&multiply_block<1>);
template <std::size_t... R>
constexpr std::array<Block, sizeof...(R)> list_blocks(std::index_sequence<R...>) {
  return {&multiply_block<R + 1>...};
}
constexpr auto BLOCKS = list_blocks(std::make_index_sequence<BLOCK>());

}  // namespace

void PackedMatrix::pack(const Matrix& w, bool transposed) {
  rows_ = transposed ? w.columns : w.rows, columns_ = transposed ? w.rows : w.columns;
  const Index n_panels = (columns_ + WIDTH - 1) / WIDTH;
  panels_ = memory_.take(n_panels * rows_, WIDTH).at;
#pragma omp parallel for if (omp_get_max_threads() > 1)
  for (Index p = 0; p < n_panels; ++p) {
    float* to = panels_ + p * rows_ * WIDTH;
    const Index first = p * WIDTH, n = std::min(WIDTH, columns_ - first);
    if (n < WIDTH) std::memset(to, 0, rows_ * WIDTH * sizeof(float));
    if (transposed) {
      for (Index column = 0; column < n; ++column)
        for (Index j = 0; j < rows_; ++j) to[j * WIDTH + column] = w.row(first + column)[j];
    } else {
      for (Index j = 0; j < rows_; ++j) std::copy_n(w.row(j) + first, n, to + j * WIDTH);
    }
  }
}

void PackedMatrix::run(const Matrix& a, const Matrix& c, Start start, const float* row) const {
  const Index n_panels = (columns_ + WIDTH - 1) / WIDTH;
#pragma omp parallel for if (omp_get_max_threads() > 1)
  for (Index p = 0; p < n_panels; ++p) {
    const float* panel = panels_ + p * rows_ * WIDTH;
    const Index first = p * WIDTH, n = std::min(WIDTH, columns_ - first);
    alignas(64) float edge[BLOCK * WIDTH], from[WIDTH] = {};  // for the last panel, and a start
    if (start == Start::row) std::copy_n(row + first, n, from);
    for (Index r = 0; r < a.rows; r += BLOCK) {
      const Index m = std::min(BLOCK, a.rows - r);
      float* to = n == WIDTH ? c.row(r) + first : edge;
      const Index stride = n == WIDTH ? c.stride : WIDTH;
      if (n < WIDTH && start == Start::itself)
        for (Index i = 0; i < m; ++i) std::copy_n(c.row(r + i) + first, n, edge + i * WIDTH);
      const bool adds = start == Start::itself;
      BLOCKS[m - 1](a.row(r), a.stride, panel, rows_, adds ? to : from, adds ? stride : 0, to,
                    stride);
      if (n < WIDTH)
        for (Index i = 0; i < m; ++i) std::copy_n(edge + i * WIDTH, n, c.row(r + i) + first);
    }
  }
}
