// LSTMs over sentences side by side, one step of all of them after another.
#pragma once

#include <deque>

#include "functions.h"
#include "network.h"

// Rows of sentences without padding: step t has a row for every sentence with a word t, the longest
// sentence first. Row r of a step continues row r of the step before.
struct Steps {
  std::vector<Index> starts;  // first row of every step, and the number of rows
  Ids along, against;         // position of every row, read forwards and backwards
  Ids mirror;                 // row of the same position, read in the other direction

  void arrange(const Column& lengths);
  Index n_steps() const { return static_cast<Index>(starts.size()) - 1; }
  Index n_rows() const { return starts.back(); }
  Index size(Index step) const { return starts[step + 1] - starts[step]; }
};

// Columns of a cell's gates, in units of its width.
struct SentenceGates {
  static constexpr int i = 0, f = 1, g = 2, o = 3;
};
struct LatticeGates {
  static constexpr int f = 0, i = 1, o = 2, g = 3;
};

// c' = f c + i g and h' = o tanh c', written to c_out and h_out or added to them. Gates are computed
// in place. Null for c_before stands for zeros.
template <class Gates, bool adds = false>
inline void compute_cell(Index n, float* gates, const float* c_before, float* c_out, float* h_out) {
  float *i = gates + Gates::i * n, *f = gates + Gates::f * n;
  float *g = gates + Gates::g * n, *o = gates + Gates::o * n;
  float *c = c_out, *h = h_out;
  const float* before = c_before;
  const auto finish = [&](Index j, float c_new) {
    o[j] = sigmoid(o[j]);
    c[j] = adds ? c[j] + c_new : c_new;
    const float h_new = o[j] * tanh_of(c_new);
    h[j] = adds ? h[j] + h_new : h_new;
  };
  if (!before) {
#pragma omp simd
    for (Index j = 0; j < n; ++j) {
      i[j] = sigmoid(i[j]), f[j] = 0, g[j] = tanh_of(g[j]);
      finish(j, i[j] * g[j]);
    }
    return;
  }
#pragma omp simd
  for (Index j = 0; j < n; ++j) {
    i[j] = sigmoid(i[j]), f[j] = sigmoid(f[j]), g[j] = tanh_of(g[j]);
    finish(j, f[j] * before[j] + i[j] * g[j]);
  }
}

// Replaces gates by the gradients of their pre-activations, given those of h' and c', and adds the
// gradient of c to dc_before, unless c is zeros (null).
template <class Gates>
inline void backpropagate_cell(Index n, float* gates, const float* c_before, const float* dh_new,
                               const float* dc_new, float* dc_before) {
  float *i = gates + Gates::i * n, *f = gates + Gates::f * n;
  float *g = gates + Gates::g * n, *o = gates + Gates::o * n;
  const float *dh = dh_new, *dc_out = dc_new, *before = c_before;
  float* below = dc_before;
  const auto pass = [&](Index j, float c_old) {
    const float tanh_c = tanh_of(f[j] * c_old + i[j] * g[j]);
    const float dc = dc_out[j] + dh[j] * o[j] * through_tanh(tanh_c);
    const float di = dc * g[j] * through_sigmoid(i[j]), dg = dc * i[j] * through_tanh(g[j]);
    o[j] = dh[j] * tanh_c * through_sigmoid(o[j]);
    i[j] = di, g[j] = dg;
    return dc;
  };
  if (!before) {
#pragma omp simd
    for (Index j = 0; j < n; ++j) pass(j, 0.0f);
    return;
  }
#pragma omp simd
  for (Index j = 0; j < n; ++j) {
    const float dc = pass(j, before[j]);
    below[j] += dc * f[j];
    f[j] = dc * before[j] * through_sigmoid(f[j]);
  }
}

// A layer in one direction, with the weights W, U, b and, if learned, h_0, c_0 of a suffix. Without
// them, the first states are zeros.
class Lstm {
 public:
  Lstm(Network& network, const std::string& suffix);

  Index width() const { return width_; }
  // Returns h of all rows; x must stay valid until `backward`.
  Matrix forward(const Steps& steps, const Matrix& x);
  // Gradient of h of all rows, to be written before `backward`, which writes dx, if it has rows.
  Matrix take_gradient();
  void backward(const Steps& steps, const Matrix& dx);

 private:
  // Rows before a step: all states, after `n_starts_` learned ones.
  Index find_before(const Steps& steps, Index step) const;

  Network& network_;
  Parameter &W_, &U_, &b_;
  Parameter *h_0_, *c_0_;
  const Index width_;
  Index n_starts_ = 0;
  Buffer gates_memory_, h_memory_, c_memory_, dh_memory_, dc_memory_, before_memory_;
  Matrix x_, gates_, h_, c_, dh_, dc_;
};
