#include "lstm.h"

#include <omp.h>

#include <numeric>

void Steps::arrange(const Column& lengths) {
  const Index k = lengths.size;
  Ids order(k), begins(k);
  std::iota(order.begin(), order.end(), 0);
  std::exclusive_scan(lengths.values, lengths.values + k, begins.begin(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return lengths.values[a] > lengths.values[b];
  });
  starts.assign(1, 0);
  Index width = k;
  for (Index step = 0; step < lengths.values[order[0]]; ++step) {
    while (lengths.values[order[width - 1]] <= step) --width;
    starts.push_back(starts.back() + width);
  }
  along.resize(n_rows()), against.resize(n_rows()), mirror.resize(n_rows());
  for (Index step = 0; step < n_steps(); ++step)
    for (Index column = 0; column < size(step); ++column) {
      const std::int32_t first = begins[order[column]], last = lengths.values[order[column]] - 1;
      const Index row = starts[step] + column;
      along[row] = first + step, against[row] = first + last - step;
      mirror[row] = starts[last - step] + column;
    }
}

Lstm::Lstm(Network& network, const std::string& suffix)
    : network_(network),
      W_(network.take("W" + suffix)),
      U_(network.take("U" + suffix)),
      b_(network.take("b" + suffix)),
      h_0_(network.has("h_0" + suffix) ? &network.take("h_0" + suffix) : nullptr),
      c_0_(h_0_ ? &network.take("c_0" + suffix) : nullptr),
      width_(U_.values.rows) {}

Index Lstm::find_before(const Steps& steps, Index step) const {
  return step > 0 ? n_starts_ + steps.starts[step - 1] : 0;
}

Matrix Lstm::forward(const Steps& steps, const Matrix& x) {
  const Index n = steps.n_rows();
  x_ = x;
  n_starts_ = h_0_ ? steps.size(0) : 0;
  gates_ = gates_memory_.take(n, 4 * width_);
  h_ = h_memory_.take(n_starts_ + n, width_), c_ = c_memory_.take(n_starts_ + n, width_);
  if (h_0_) {
    fill_rows(h_.rows_from(0, n_starts_), h_0_->values.at);
    fill_rows(c_.rows_from(0, n_starts_), c_0_->values.at);
  }
  W_.multiply_once(x, gates_, b_.values.at);
  for (Index step = 0; step < steps.n_steps(); ++step) {
    const Index first = steps.starts[step], size = steps.size(step);
    const Index before = find_before(steps, step);
    const bool has_before = step > 0 || h_0_;
    const Matrix gates = gates_.rows_from(first, size);
    if (has_before) U_.add_product(h_.rows_from(before, size), gates);
#pragma omp parallel for if (omp_get_max_threads() > 1)
    for (Index r = 0; r < size; ++r) {
      const Index own = n_starts_ + first + r;
      compute_cell<SentenceGates>(width_, gates.row(r), has_before ? c_.row(before + r) : nullptr,
                                  c_.row(own), h_.row(own));
    }
  }
  return h_.rows_from(n_starts_, n);
}

Matrix Lstm::take_gradient() {
  dh_ = dh_memory_.take(h_.rows, width_);
  return dh_.rows_from(n_starts_, h_.rows - n_starts_);
}

void Lstm::backward(const Steps& steps, const Matrix& dx) {
  dc_ = dc_memory_.take(h_.rows, width_);
  fill_zeros(dc_);
  fill_zeros(dh_.rows_from(0, n_starts_));
  for (Index step = steps.n_steps() - 1; step >= 0; --step) {
    const Index first = steps.starts[step], size = steps.size(step);
    const Index before = find_before(steps, step);
    const bool has_before = step > 0 || h_0_;
    const Matrix gates = gates_.rows_from(first, size);
#pragma omp parallel for if (omp_get_max_threads() > 1)
    for (Index r = 0; r < size; ++r) {
      const Index own = n_starts_ + first + r;
      backpropagate_cell<SentenceGates>(
          width_, gates.row(r), has_before ? c_.row(before + r) : nullptr, dh_.row(own),
          dc_.row(own), has_before ? dc_.row(before + r) : nullptr);
    }
    if (has_before) U_.add_transposed(gates, dh_.rows_from(before, size));
  }
  // One product for each weight: states before all rows, with the rows that have one.
  const Index skipped = h_0_ ? 0 : steps.size(0), n = gates_.rows - skipped;
  const Matrix befores = before_memory_.take(n, width_);
  for (Index step = h_0_ ? 0 : 1; step < steps.n_steps(); ++step) {
    const Index size = steps.size(step);
    copy(h_.rows_from(find_before(steps, step), size),
         befores.rows_from(steps.starts[step] - skipped, size));
  }
  multiply_outer(befores, gates_.rows_from(skipped, n), U_.gradient);
  multiply_outer(x_, gates_, W_.gradient);
  sum_rows(gates_, b_.gradient.at);
  if (dx.rows > 0) W_.multiply_transposed(gates_, dx);
  if (!h_0_) return;
  sum_rows(dh_.rows_from(0, n_starts_), h_0_->gradient.at);
  sum_rows(dc_.rows_from(0, n_starts_), c_0_->gradient.at);
}
