// Dependency parser: two BiLSTM layers, then one transition of every sentence after another
// (harness/models/parser.py).
//
// The layer over the joined vectors of several tokens is a sum of one term per slot. One product
// before the first transition computes the terms of all tokens; every step adds up the terms of the
// tokens that it looks at, and computes scores and loss before the next one.
#include <omp.h>

#include "lstm.h"

namespace {

class Parser : public Network {
 public:
  Parser(const Weights& weights, bool is_training)
      : Network(weights, is_training),
        embedding_(take_table("embedding")),
        tags_(take_table("tags")),
        forward_(*this, "_forward"),
        backward_(*this, "_backward"),
        forward_2_(*this, "_forward_2"),
        backward_2_(*this, "_backward_2"),
        missing_(take("missing")),
        width_(missing_.values.columns),
        W_mlp_(take("W_mlp")),
        b_mlp_(take("b_mlp")),
        classifier_(*this),
        n_slots_(W_mlp_.values.rows / width_),
        mlp_(W_mlp_.values.columns) {}

  void construct(const Columns& columns) override {
    const Column &words = columns.at(1), &tags = columns.at(2), &labels = columns.at(5);
    tokens_.arrange(columns.at(0)), transitions_.arrange(columns.at(3));
    const Index n = words.size, n_transitions = transitions_.n_rows();
    Ids rows(n);
    for (Ids* ids : {&words_, &words_against_, &word_tags_, &tags_against_}) ids->resize(n);
    for (Index r = 0; r < n; ++r) {
      const std::int32_t along = tokens_.along[r], against = tokens_.against[r];
      rows[along] = r;
      words_[r] = words.values[along], words_against_[r] = words.values[against];
      word_tags_[r] = tags.values[along], tags_against_[r] = tags.values[against];
    }
    Ids first_tokens;  // of the sentence of every transition
    for (Index k = 0, first = 0; k < columns.at(0).size; first += columns.at(0).values[k++])
      first_tokens.insert(first_tokens.end(), columns.at(3).values[k], first);
    seen_.resize(n_transitions * n_slots_), labels_.resize(n_transitions);
    for (Index r = 0; r < n_transitions; ++r) {
      const std::int32_t transition = transitions_.along[r];
      labels_[r] = labels.values[transition];
      for (Index slot = 0; slot < n_slots_; ++slot) {
        const std::int32_t token = columns.at(4).values[transition * n_slots_ + slot];
        seen_[r * n_slots_ + slot] = token < 0 ? n : rows[first_tokens[transition] + token];
      }
    }
  }

  double forward() override {
    const Index n = tokens_.n_rows(), half = width_ / 2;
    const Matrix both = both_memory_.take(n, width_);
    vectors_ = vectors_memory_.take(n + 1, width_);
    copy(forward_.forward(tokens_, look_up(x_memory_, words_, word_tags_)),
         both.columns_from(0, half));
    gather_rows(backward_.forward(tokens_, look_up(x_against_memory_, words_against_, tags_against_)),
                tokens_.mirror.data(), both.columns_from(half, half));
    const Matrix mirrored = mirrored_memory_.take(n, width_);
    gather_rows(both, tokens_.mirror.data(), mirrored);
    copy(forward_2_.forward(tokens_, both), vectors_.rows_from(0, n).columns_from(0, half));
    gather_rows(backward_2_.forward(tokens_, mirrored), tokens_.mirror.data(),
                vectors_.rows_from(0, n).columns_from(half, half));
#pragma omp simd
    for (Index j = 0; j < width_; ++j) vectors_.row(n)[j] = tanh_of(missing_.values.at[j]);
    terms_ = terms_memory_.take(n + 1, n_slots_ * mlp_);
    for (Index slot = 0; slot < n_slots_; ++slot)
      multiply(vectors_, W_mlp_.values.rows_from(slot * width_, width_),
               terms_.columns_from(slot * mlp_, mlp_));
    return compute_transitions();
  }

  void backward() override {
    const Index n = tokens_.n_rows(), half = width_ / 2;
    const Matrix dvectors = backpropagate_transitions();
#pragma omp simd
    for (Index j = 0; j < width_; ++j)
      missing_.gradient.at[j] = dvectors.row(n)[j] * through_tanh(vectors_.row(n)[j]);
    copy(dvectors.rows_from(0, n).columns_from(0, half), forward_2_.take_gradient());
    gather_rows(dvectors.columns_from(half, half), tokens_.mirror.data(), backward_2_.take_gradient());
    const Matrix dboth = dboth_memory_.take(n, width_), back = back_memory_.take(n, width_);
    forward_2_.backward(tokens_, dboth), backward_2_.backward(tokens_, back);
    for (Index r = 0; r < n; ++r)
#pragma omp simd
      for (Index j = 0; j < width_; ++j) dboth.row(r)[j] += back.row(tokens_.mirror[r])[j];
    copy(dboth.columns_from(0, half), forward_.take_gradient());
    gather_rows(dboth.columns_from(half, half), tokens_.mirror.data(), backward_.take_gradient());
    backpropagate_inputs(forward_, dx_memory_, words_, word_tags_);
    backpropagate_inputs(backward_, dx_against_memory_, words_against_, tags_against_);
  }

  Index n_outputs() const override { return classifier_.size(); }
  void read_outputs(float* scores) override { classifier_.read(transitions_.along, scores); }

 private:
  Matrix look_up(Buffer& memory, const Ids& words, const Ids& tags) const {
    const Index e = embedding_.values().columns, t = tags_.values().columns;
    const Matrix x = memory.take(words.size(), e + t);
    embedding_.look_up(words.data(), x.columns_from(0, e));
    tags_.look_up(tags.data(), x.columns_from(e, t));
    return x;
  }

  double compute_transitions() {
    hidden_ = hidden_memory_.take(transitions_.n_rows(), mlp_);
    classifier_.begin(hidden_, labels_, transitions_.size(0));
    double loss = 0;
    for (Index step = 0; step < transitions_.n_steps(); ++step) {
      const Index first = transitions_.starts[step], size = transitions_.size(step);
#pragma omp parallel for if (omp_get_max_threads() > 1)
      for (Index r = first; r < first + size; ++r) {
        float* hidden = hidden_.row(r);
        std::copy_n(b_mlp_.values.at, mlp_, hidden);
        for (Index slot = 0; slot < n_slots_; ++slot) {
          const float* term = terms_.row(seen_[r * n_slots_ + slot]) + slot * mlp_;
#pragma omp simd
          for (Index j = 0; j < mlp_; ++j) hidden[j] += term[j];
        }
#pragma omp simd
        for (Index j = 0; j < mlp_; ++j) hidden[j] = tanh_of(hidden[j]);
      }
      loss += classifier_.compute(first, size);
    }
    return loss;
  }

  // Returns the gradient of the vectors.
  Matrix backpropagate_transitions() {
    const Matrix d = dhidden_memory_.take(hidden_.rows, mlp_);
    classifier_.backward(d);
#pragma omp simd
    for (Index j = 0; j < hidden_.rows * mlp_; ++j) d.at[j] *= through_tanh(hidden_.at[j]);
    sum_rows(d, b_mlp_.gradient.at);
    const Matrix dterms = dterms_memory_.take(terms_.rows, terms_.columns);
    fill_zeros(dterms);
    for (Index r = 0; r < d.rows; ++r)
      for (Index slot = 0; slot < n_slots_; ++slot) {
        float* term = dterms.row(seen_[r * n_slots_ + slot]) + slot * mlp_;
#pragma omp simd
        for (Index j = 0; j < mlp_; ++j) term[j] += d.row(r)[j];
      }
    const Matrix dvectors = dvectors_memory_.take(vectors_.rows, width_);
    for (Index slot = 0; slot < n_slots_; ++slot) {
      const Matrix own = dterms.columns_from(slot * mlp_, mlp_);
      multiply_outer(vectors_, own, W_mlp_.gradient.rows_from(slot * width_, width_));
      multiply_transposed(own, W_mlp_.values.rows_from(slot * width_, width_), dvectors, slot > 0);
    }
    return dvectors;
  }

  void backpropagate_inputs(Lstm& lstm, Buffer& memory, const Ids& words, const Ids& tags) {
    const Index e = embedding_.values().columns, t = tags_.values().columns;
    const Matrix dx = memory.take(words.size(), e + t);
    lstm.backward(tokens_, dx);
    embedding_.add_gradient(words, dx.columns_from(0, e));
    tags_.add_gradient(tags, dx.columns_from(e, t));
  }

  Table &embedding_, &tags_;
  Lstm forward_, backward_, forward_2_, backward_2_;
  Parameter& missing_;
  const Index width_;
  Parameter &W_mlp_, &b_mlp_;
  Classifier classifier_;
  const Index n_slots_, mlp_;
  Steps tokens_, transitions_;
  Ids words_, words_against_, word_tags_, tags_against_;  // of all rows
  Ids seen_, labels_;  // rows of the tokens that every transition looks at, slot after slot
  Buffer x_memory_, x_against_memory_, both_memory_, mirrored_memory_, vectors_memory_,
      terms_memory_, hidden_memory_, dhidden_memory_, dterms_memory_, dvectors_memory_,
      dboth_memory_, back_memory_, dx_memory_, dx_against_memory_;
  Matrix vectors_, terms_, hidden_;
};

const Registration<Parser> registration("parser");

}  // namespace
