#include "network.h"

#include <omp.h>

#include <cmath>
#include <cstring>

#include "functions.h"

namespace {

// Numbers of rows above which a library is faster than packed weights: W and W^T.
constexpr Index MOST_ROWS = 256, MOST_ROWS_TRANSPOSED = 1024;

}  // namespace

void Parameter::multiply(const Matrix& a, const Matrix& c, const float* row) {
  if (a.rows <= MOST_ROWS) return pack(packed_, false).multiply(a, c, row);
  start_and_multiply(a, c, row);
}

void Parameter::multiply_once(const Matrix& a, const Matrix& c, const float* row) {
  if (is_trained_) return start_and_multiply(a, c, row);
  multiply(a, c, row);
}

void Parameter::start_and_multiply(const Matrix& a, const Matrix& c, const float* row) {
  if (row) fill_rows(c, row);
  ::multiply(a, values, c, row != nullptr);
}

void Parameter::add_product(const Matrix& a, const Matrix& c) {
  if (a.rows <= MOST_ROWS) return pack(packed_, false).add_product(a, c);
  ::multiply(a, values, c, true);
}

void Parameter::multiply_transposed(const Matrix& a, const Matrix& c) {
  if (a.rows <= MOST_ROWS_TRANSPOSED) return pack(transposed_, true).multiply(a, c, nullptr);
  ::multiply_transposed(a, values, c);
}

void Parameter::add_transposed(const Matrix& a, const Matrix& c) {
  if (a.rows <= MOST_ROWS_TRANSPOSED) return pack(transposed_, true).add_product(a, c);
  ::multiply_transposed(a, values, c, true);
}

const PackedMatrix& Parameter::pack(Packed& packed, bool transposed) {
  if (!packed.is_valid) packed.matrix.pack(values, transposed);
  packed.is_valid = true;
  return packed.matrix;
}

void Parameter::update(float rate) {
  float* w = values.at;
  const float* d = gradient.at;
  const Index size = values.rows * values.columns;
#pragma omp parallel for simd if (omp_get_max_threads() > 1)
  for (Index j = 0; j < size; ++j) w[j] -= rate * d[j];
  packed_.is_valid = transposed_.is_valid = false;
}

Table::Table(const Matrix& values) : values_(memory_.take(values.rows, values.columns)) {
  copy(values, values_);
}

void Table::update(float rate) {
  for (const Lookup& lookup : lookups_)
    for (std::size_t r = 0; r < lookup.ids->size(); ++r) {
      float* row = values_.row((*lookup.ids)[r]);
      const float* d = lookup.dx.row(r);
#pragma omp simd
      for (Index j = 0; j < values_.columns; ++j) row[j] -= rate * d[j];
    }
}

void Table::read_gradient(float* dense) const {
  std::fill_n(dense, values_.rows * values_.columns, 0.0f);
  for (const Lookup& lookup : lookups_)
    for (std::size_t r = 0; r < lookup.ids->size(); ++r)
#pragma omp simd
      for (Index j = 0; j < values_.columns; ++j)
        dense[(*lookup.ids)[r] * values_.columns + j] += lookup.dx.row(r)[j];
}

void Network::begin() {
  for (auto& [name, table] : tables_) table.clear_gradient();
}

void Network::update(float rate) {
  for (auto& [name, table] : tables_) table.update(rate);
  for (auto& [name, parameter] : parameters_) parameter.update(rate);
}

namespace {

void write(const Matrix& from, float* to) { copy(from, {to, from.rows, from.columns, from.columns}); }

}  // namespace

void Network::read_values(const std::string& name, float* values) const {
  const auto table = tables_.find(name);
  write(table == tables_.end() ? parameters_.at(name).values : table->second.values(), values);
}

void Network::read_gradient(const std::string& name, float* values) const {
  const auto table = tables_.find(name);
  if (table != tables_.end()) return table->second.read_gradient(values);
  write(parameters_.at(name).gradient, values);
}

Parameter& Network::take(const std::string& name) {
  return parameters_.try_emplace(name, weights_.at(name), trains_).first->second;
}

Table& Network::take_table(const std::string& name) {
  return tables_.try_emplace(name, weights_.at(name)).first->second;
}

Classifier::Classifier(Network& network)
    : network_(network),
      W_(network.take("W_out")),
      b_(network.has("b_out") ? &network.take("b_out") : nullptr) {}

namespace {

// Returns the negative log likelihood of a label; overwrites the scores, in training with its gradient.
double compute_loss(float* scores, Index n, Index label, bool trains) {
  float most = scores[0], sum = 0;
#pragma omp simd reduction(max : most)
  for (Index j = 1; j < n; ++j) most = scores[j] > most ? scores[j] : most;
  const float of_label = scores[label] - most;
#pragma omp simd reduction(+ : sum)
  for (Index j = 0; j < n; ++j) {
    scores[j] = exponential(scores[j] - most);
    sum += scores[j];
  }
  if (!trains) return std::log(sum) - of_label;
  const float scale = 1.0f / sum;
#pragma omp simd
  for (Index j = 0; j < n; ++j) scores[j] *= scale;
  scores[label] -= 1.0f;
  return std::log(sum) - of_label;
}

}  // namespace

double Classifier::forward(const Matrix& h, const Ids& labels) {
  // In inference, some rows at a time use the same memory, which stays in a cache.
  const Index chunk = network_.trains() ? h.rows : 288;
  begin(h, labels, chunk);
  double loss = 0;
  for (Index first = 0; first < h.rows; first += chunk)
    loss += compute(first, std::min(chunk, h.rows - first));
  return loss;
}

void Classifier::begin(const Matrix& h, const Ids& labels, Index n_most) {
  h_ = h, labels_ = &labels;
  scores_ = scores_memory_.take(network_.trains() ? h.rows : n_most, W_.values.columns);
}

double Classifier::compute(Index first, Index n) {
  const Matrix h = h_.rows_from(first, n);
  const Matrix scores = scores_.rows_from(network_.trains() ? first : 0, n);
  const float* bias = b_ ? b_->values.at : nullptr;
  if (n == h_.rows)
    W_.multiply_once(h, scores, bias);
  else
    W_.multiply(h, scores, bias);
  double loss = 0;
#pragma omp parallel for reduction(+ : loss) if (omp_get_max_threads() > 1)
  for (Index r = 0; r < n; ++r)
    loss += compute_loss(scores.row(r), scores.columns, (*labels_)[first + r], network_.trains());
  return loss;
}

void Classifier::backward(const Matrix& dh) {
  multiply_outer(h_, scores_, W_.gradient);
  multiply_transposed(scores_, W_.values, dh);
  if (b_) sum_rows(scores_, b_->gradient.at);
}

void Classifier::read(const Ids& places, float* scores) const {
  const Index n_classes = W_.values.columns;
  for (Index r = 0; r < h_.rows; ++r) {
    const Matrix row = {scores + places[r] * n_classes, 1, n_classes, n_classes};
    if (b_) fill_rows(row, b_->values.at);
    multiply(h_.rows_from(r, 1), W_.values, row, b_ != nullptr);
  }
}

std::map<std::string, Factory>& factories() {
  static std::map<std::string, Factory> all;
  return all;
}
