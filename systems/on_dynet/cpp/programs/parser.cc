// Transition-based parser: the graph of systems/on_dynet/models/pairs_parser.py. Every segment has
// the next transition of all sentences; the first one also has the vectors of all tokens.
#include <algorithm>

#include "program.h"

using namespace dynet;

namespace {

class Parser : public Program {
 private:
  struct Sentence {
    Expressions vectors;
    std::int64_t first;  // transition, of all sentences'
    std::int64_t n_transitions;
  };

  void build(const std::vector<Column>& columns) override {
    const Column &sizes = columns.at(0), &n_transitions = columns.at(3);
    const std::int32_t *words = columns.at(1).values, *tags = columns.at(2).values;
    features_ = columns.at(4).values, labels_ = columns.at(5).values;
    n_features_ = columns.at(4).size / columns.at(5).size;
    begin_weights();
    sentences_.clear();
    std::int64_t first = 0;
    for (std::int64_t k = 0; k < sizes.size; ++k) {
      const std::int32_t n = sizes.values[k];
      sentences_.push_back({compute_vectors(words, tags, n), first, n_transitions.values[k]});
      words += n, tags += n, first += n_transitions.values[k];
    }
    outputs_.resize(first);
    step_ = 0;
    build_next();
  }

  bool has_next() const override {
    return std::any_of(sentences_.begin(), sentences_.end(),
                       [&](const Sentence& own) { return step_ < own.n_transitions; });
  }

  void build_next() override {
    Expressions losses;
    for (const Sentence& own : sentences_) {
      if (step_ >= own.n_transitions) continue;
      const std::int64_t transition = own.first + step_;
      const std::int32_t* tokens = features_ + transition * n_features_;
      Expressions seen;
      for (std::int64_t k = 0; k < n_features_; ++k) {
        seen.push_back(tokens[k] < 0 ? missing_ : own.vectors[tokens[k]]);
      }
      const Expression hidden = tanh(affine_transform({b_mlp_, W_mlp_, concatenate(seen)}));
      outputs_[transition] = affine_transform({b_out_, W_out_, hidden});
      losses.push_back(
          pickneglogsoftmax(outputs_[transition], static_cast<unsigned>(labels_[transition])));
    }
    add_loss(sum(losses));
    ++step_;
  }

  void begin_weights() {
    words_ = table("embedding"), tags_ = table("tags");
    begin(layers_[0][0], {"_forward"});
    begin(layers_[0][1], {"_backward"});
    begin(layers_[1][0], {"_forward_2"});
    begin(layers_[1][1], {"_backward_2"});
    missing_ = tanh(weight("missing"));
    b_mlp_ = weight("b_mlp"), W_mlp_ = weight("W_mlp");
    b_out_ = weight("b_out"), W_out_ = weight("W_out");
  }

  // Returns a vector per token: both directions of the upper layer, concatenated.
  Expressions compute_vectors(const std::int32_t* words, const std::int32_t* tags, std::int32_t n) {
    Expressions vectors;
    vectors.reserve(n);
    for (std::int32_t k = 0; k < n; ++k) {
      vectors.push_back(concatenate({look_up(words_, words[k]), look_up(tags_, tags[k])}));
    }
    for (auto& layer : layers_) {
      const Expressions there = layer[0].read(vectors.begin(), vectors.end());
      const Expressions back = layer[1].read(vectors.rbegin(), vectors.rend());
      for (std::int32_t k = 0; k < n; ++k) {
        vectors[k] = concatenate({there[k], back[n - 1 - k]});
      }
    }
    return vectors;
  }

  LSTM layers_[2][2];  // each has two directions
  LookupParameter words_, tags_;
  Expression missing_, b_mlp_, W_mlp_, b_out_, W_out_;
  std::vector<Sentence> sentences_;
  const std::int32_t *features_ = nullptr, *labels_ = nullptr;
  std::int64_t n_features_ = 0, step_ = 0;
};

const Registration<Parser> parser("parser");

}  // namespace
