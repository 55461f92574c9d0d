// Binary N-ary Tree-LSTM, level by level (harness/models/tree_lstm.py).
#include <omp.h>

#include <algorithm>

#include "functions.h"
#include "network.h"

namespace {

constexpr Index CHUNK = 48;  // rows whose gates, in inference, stay in the cache until their cell

// Vertices in rows, the leaves first, then all others by height.
struct Rows {
  Ids words;     // of the leaves
  Ids labels;    // of all rows
  Ids vertices;  // of all rows
  Ids children;  // rows of both children of every internal row
  Ids places;    // of every row in `children`; for roots the number after the last
  std::vector<Index> starts;  // of every level among the internal rows, and their end

  Index n_leaves() const { return words.size(); }
  Index n() const { return labels.size(); }
  Index n_internal() const { return n() - n_leaves(); }
};

void arrange(const Columns& columns, Rows& rows) {
  const Column &sizes = columns.at(0), &words = columns.at(1), &labels = columns.at(2);
  const std::int32_t *left = columns.at(3).values, *right = columns.at(4).values;
  const Index n = words.size;
  Ids heights(n), offsets(n), row_of(n);
  std::vector<Index> ends{0};  // first the sizes of levels
  for (Index tree = 0, first = 0; tree < sizes.size; first += sizes.values[tree++])
    for (Index v = first; v < first + sizes.values[tree]; ++v) {
      offsets[v] = first;
      heights[v] = left[v] < 0 ? 0 : 1 + std::max(heights[first + left[v]], heights[first + right[v]]);
      if (heights[v] >= static_cast<Index>(ends.size())) ends.resize(heights[v] + 1);
      ++ends[heights[v]];
    }
  std::vector<Index> next(ends.size());
  for (std::size_t level = 1; level < ends.size(); ++level) {
    next[level] = ends[level - 1];
    ends[level] += ends[level - 1];
  }
  const Index n_leaves = ends[0];
  rows.words.resize(n_leaves), rows.labels.resize(n), rows.vertices.resize(n);
  rows.children.resize(2 * (n - n_leaves)), rows.places.assign(n, 2 * (n - n_leaves));
  for (Index v = 0; v < n; ++v) {
    const Index row = row_of[v] = next[heights[v]]++;
    rows.labels[row] = labels.values[v], rows.vertices[row] = v;
    if (left[v] < 0) {
      rows.words[row] = words.values[v];
      continue;
    }
    Index place = 2 * (row - n_leaves);
    for (const std::int32_t child : {left[v], right[v]}) {
      rows.children[place] = row_of[offsets[v] + child];
      rows.places[rows.children[place]] = place;
      ++place;
    }
  }
  rows.starts.clear();
  for (const Index end : ends) rows.starts.push_back(end - n_leaves);
}

class TreeLSTM : public Network {
 public:
  TreeLSTM(const Weights& weights, bool is_training)
      : Network(weights, is_training),
        embedding_(take_table("embedding")),
        W_(take("W")),
        b_leaf_(take("b_leaf")),
        U_(take("U")),
        b_(take("b")),
        F_1_(take("F_1")),
        F_2_(take("F_2")),
        b_f_(take("b_f")),
        classifier_(*this),
        width_(b_f_.values.columns) {}

  void construct(const Columns& columns) override {
    arrange(columns, rows_);
    const Index n = rows_.n();
    chunk_ = trains() ? n : CHUNK;
    const Index n_leaves = trains() ? rows_.n_leaves() : CHUNK;
    const Index n_internal = trains() ? rows_.n_internal() : CHUNK;
    x_ = x_memory_.take(n_leaves, W_.values.rows);
    leaf_gates_ = leaf_gates_memory_.take(n_leaves, 3 * width_);
    gates_ = gates_memory_.take(n_internal, 5 * width_);
    both_h_ = both_h_memory_.take(n_internal, 2 * width_);
    h_ = h_memory_.take(n, width_), c_ = c_memory_.take(n, width_);
  }

  double forward() override {
    for (Index first = 0; first < rows_.n_leaves(); first += chunk_)
      compute_leaves(first, std::min(chunk_, rows_.n_leaves() - first));
    for (std::size_t k = 1; k < rows_.starts.size(); ++k)
      for (Index first = rows_.starts[k - 1]; first < rows_.starts[k]; first += chunk_)
        compute_internal(first, std::min(chunk_, rows_.starts[k] - first));
    return classifier_.forward(h_, rows_.labels);
  }

  void backward() override {
    const Index n_internal = rows_.n_internal();
    dh_ = dh_memory_.take(rows_.n(), width_);
    classifier_.backward(dh_);
    // Gradients that internal vertices pass to their children; the last row, for roots, is zero.
    below_h_ = below_h_memory_.take(2 * n_internal + 1, width_);
    below_c_ = below_c_memory_.take(2 * n_internal + 1, width_);
    fill_zeros(below_h_.rows_from(2 * n_internal, 1));
    fill_zeros(below_c_.rows_from(2 * n_internal, 1));
    for (std::size_t k = rows_.starts.size() - 1; k > 0; --k)
      backpropagate_internal(rows_.starts[k - 1], rows_.starts[k] - rows_.starts[k - 1]);
#pragma omp parallel for if (omp_get_max_threads() > 1)
    for (Index r = 0; r < rows_.n_leaves(); ++r) backpropagate_leaf(r);
    write_gradients();
  }

  Index n_outputs() const override { return classifier_.size(); }
  void read_outputs(float* scores) override { classifier_.read(rows_.vertices, scores); }

 private:
  void compute_leaves(Index first, Index n) {
    const Index at = trains() ? first : 0;
    const Matrix x = x_.rows_from(at, n), gates = leaf_gates_.rows_from(at, n);
    embedding_.look_up(rows_.words.data() + first, x);
    W_.multiply(x, gates, b_leaf_.values.at);
#pragma omp parallel for if (omp_get_max_threads() > 1)
    for (Index r = 0; r < n; ++r) compute_leaf(gates.row(r), c_.row(first + r), h_.row(first + r));
  }

  void compute_leaf(float* gates, float* c, float* h) const {
    float *i = gates, *o = i + width_, *u = o + width_;
#pragma omp simd
    for (Index j = 0; j < width_; ++j) {
      i[j] = sigmoid(i[j]), o[j] = sigmoid(o[j]), u[j] = tanh_of(u[j]);
      c[j] = i[j] * u[j];
      h[j] = o[j] * tanh_of(c[j]);
    }
  }

  void compute_internal(Index first, Index n) {
    const Index at = trains() ? first : 0, w = width_;
    const Matrix gates = gates_.rows_from(at, n), both_h = both_h_.rows_from(at, n);
    const std::int32_t* children = rows_.children.data() + 2 * first;
    gather_rows(h_, children, {both_h.at, 2 * n, w, w});
    F_1_.multiply(both_h.columns_from(0, w), gates.columns_from(0, w), b_f_.values.at);
    U_.multiply(both_h, gates.columns_from(w, 3 * w), b_.values.at);
    F_2_.multiply(both_h.columns_from(w, w), gates.columns_from(4 * w, w), b_f_.values.at);
#pragma omp parallel for if (omp_get_max_threads() > 1)
    for (Index r = 0; r < n; ++r) {
      const Index row = rows_.n_leaves() + first + r;
      compute_cell(gates.row(r), c_.row(children[2 * r]), c_.row(children[2 * r + 1]),
                   c_.row(row), h_.row(row));
    }
  }

  void compute_cell(float* gates, const float* c_1, const float* c_2, float* c, float* h) const {
    float *f_1 = gates, *i = f_1 + width_, *o = i + width_, *u = o + width_, *f_2 = u + width_;
#pragma omp simd
    for (Index j = 0; j < width_; ++j) {
      f_1[j] = sigmoid(f_1[j]), f_2[j] = sigmoid(f_2[j]);
      i[j] = sigmoid(i[j]), o[j] = sigmoid(o[j]), u[j] = tanh_of(u[j]);
      c[j] = i[j] * u[j] + f_1[j] * c_1[j] + f_2[j] * c_2[j];
      h[j] = o[j] * tanh_of(c[j]);
    }
  }

  // Gradients of gates take the place of the gates.
  void backpropagate_internal(Index first, Index n) {
    const Index w = width_;
    const Matrix gates = gates_.rows_from(first, n);
#pragma omp parallel for if (omp_get_max_threads() > 1)
    for (Index r = 0; r < n; ++r) backpropagate_cell(first + r);
    const Matrix below = {below_h_.row(2 * first), n, 2 * w, 2 * w};
    U_.multiply_transposed(gates.columns_from(w, 3 * w), below);
    F_1_.add_transposed(gates.columns_from(0, w), below.columns_from(0, w));
    F_2_.add_transposed(gates.columns_from(4 * w, w), below.columns_from(w, w));
  }

  void backpropagate_cell(Index internal) {
    const Index row = rows_.n_leaves() + internal, place = rows_.places[row];
    float *f_1 = gates_.row(internal), *i = f_1 + width_, *o = i + width_, *u = o + width_;
    float* f_2 = u + width_;
    float *dc_1 = below_c_.row(2 * internal), *dc_2 = dc_1 + width_;
    const float *dh = dh_.row(row), *parent_h = below_h_.row(place);
    const float *parent_c = below_c_.row(place), *c = c_.row(row);
    const float* c_1 = c_.row(rows_.children[2 * internal]);
    const float* c_2 = c_.row(rows_.children[2 * internal + 1]);
#pragma omp simd
    for (Index j = 0; j < width_; ++j) {
      const float d = dh[j] + parent_h[j], tanh_c = tanh_of(c[j]), i_j = i[j];
      const float dc = parent_c[j] + d * o[j] * through_tanh(tanh_c);
      dc_1[j] = dc * f_1[j], dc_2[j] = dc * f_2[j];
      f_1[j] = dc * c_1[j] * through_sigmoid(f_1[j]);
      f_2[j] = dc * c_2[j] * through_sigmoid(f_2[j]);
      i[j] = dc * u[j] * through_sigmoid(i_j);
      o[j] = d * tanh_c * through_sigmoid(o[j]);
      u[j] = dc * i_j * through_tanh(u[j]);
    }
  }

  void backpropagate_leaf(Index row) {
    const Index place = rows_.places[row];
    float *i = leaf_gates_.row(row), *o = i + width_, *u = o + width_;
    const float *dh = dh_.row(row), *parent_h = below_h_.row(place);
    const float *parent_c = below_c_.row(place), *c = c_.row(row);
#pragma omp simd
    for (Index j = 0; j < width_; ++j) {
      const float d = dh[j] + parent_h[j], tanh_c = tanh_of(c[j]), i_j = i[j];
      const float dc = parent_c[j] + d * o[j] * through_tanh(tanh_c);
      i[j] = dc * u[j] * through_sigmoid(i_j);
      o[j] = d * tanh_c * through_sigmoid(o[j]);
      u[j] = dc * i_j * through_tanh(u[j]);
    }
  }

  void write_gradients() {
    const Index n = width_;
    multiply_outer(both_h_, gates_.columns_from(n, 3 * n), U_.gradient);
    multiply_outer(both_h_.columns_from(0, n), gates_.columns_from(0, n), F_1_.gradient);
    multiply_outer(both_h_.columns_from(n, n), gates_.columns_from(4 * n, n), F_2_.gradient);
    sum_rows(gates_.columns_from(n, 3 * n), b_.gradient.at);
    sum_rows(gates_.columns_from(0, n), b_f_.gradient.at);
    sum_rows(gates_.columns_from(4 * n, n), b_f_.gradient.at, true);
    multiply_outer(x_, leaf_gates_, W_.gradient);
    sum_rows(leaf_gates_, b_leaf_.gradient.at);
    const Matrix dx = dx_memory_.take(x_.rows, x_.columns);
    W_.multiply_transposed(leaf_gates_, dx);
    embedding_.add_gradient(rows_.words, dx);
  }

  Table& embedding_;
  Parameter &W_, &b_leaf_, &U_, &b_, &F_1_, &F_2_, &b_f_;
  Classifier classifier_;
  const Index width_;
  Index chunk_ = 0;  // largest number of rows of a batch
  Rows rows_;
  Buffer x_memory_, leaf_gates_memory_, gates_memory_, both_h_memory_, h_memory_, c_memory_,
      dh_memory_, below_h_memory_, below_c_memory_, dx_memory_;
  Matrix x_, leaf_gates_, gates_, both_h_, h_, c_, dh_, below_h_, below_c_;
};

const Registration<TreeLSTM> registration("tree_lstm");

}  // namespace
