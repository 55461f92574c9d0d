// BiLSTM tagger: stacks of LSTMs in both directions, and a layer over both (harness/models/bilstm.py).
#include <omp.h>

#include "lstm.h"

namespace {

// One direction: words in the order of its rows, and its layers.
struct Stack {
  Ids words;
  std::deque<Lstm> layers;
  Buffer x, dx;
};

class BiLSTM : public Network {
 public:
  BiLSTM(const Weights& weights, bool is_training)
      : Network(weights, is_training),
        embedding_(take_table("embedding")),
        W_tag_(take("W_tag")),
        b_tag_(take("b_tag")),
        classifier_(*this) {
    for (Stack* stack : {&forward_, &backward_}) {
      const std::string suffix = stack == &forward_ ? "_forward" : "_backward";
      stack->layers.emplace_back(*this, suffix);
      for (int k = 2; has("W" + suffix + "_" + std::to_string(k)); ++k)
        stack->layers.emplace_back(*this, suffix + "_" + std::to_string(k));
    }
  }

  void construct(const Columns& columns) override {
    const Column &words = columns.at(1), &labels = columns.at(2);
    steps_.arrange(columns.at(0));
    for (Ids* ids : {&forward_.words, &backward_.words, &labels_}) ids->resize(words.size);
    for (Index r = 0; r < words.size; ++r) {
      forward_.words[r] = words.values[steps_.along[r]];
      backward_.words[r] = words.values[steps_.against[r]];
      labels_[r] = labels.values[steps_.along[r]];
    }
  }

  double forward() override {
    const Index n = steps_.n_rows(), width = forward_.layers[0].width();
    both_ = both_memory_.take(n, 2 * width);
    copy(run(forward_), both_.columns_from(0, width));
    gather_rows(run(backward_), steps_.mirror.data(), both_.columns_from(width, width));
    tag_ = tag_memory_.take(n, W_tag_.values.columns);
    W_tag_.multiply_once(both_, tag_, b_tag_.values.at);
#pragma omp simd
    for (Index j = 0; j < n * tag_.columns; ++j) tag_.at[j] = tanh_of(tag_.at[j]);
    return classifier_.forward(tag_, labels_);
  }

  void backward() override {
    const Index n = steps_.n_rows(), width = forward_.layers[0].width();
    const Matrix dtag = dtag_memory_.take(n, tag_.columns);
    classifier_.backward(dtag);
#pragma omp simd
    for (Index j = 0; j < n * tag_.columns; ++j) dtag.at[j] *= through_tanh(tag_.at[j]);
    multiply_outer(both_, dtag, W_tag_.gradient);
    sum_rows(dtag, b_tag_.gradient.at);
    const Matrix& W = W_tag_.values;
    multiply_transposed(dtag, W.rows_from(0, width), forward_.layers.back().take_gradient());
    const Matrix mirrored = mirrored_memory_.take(n, tag_.columns);
    gather_rows(dtag, steps_.mirror.data(), mirrored);
    multiply_transposed(mirrored, W.rows_from(width, width), backward_.layers.back().take_gradient());
    for (Stack* stack : {&forward_, &backward_}) backpropagate(*stack);
  }

  Index n_outputs() const override { return classifier_.size(); }
  void read_outputs(float* scores) override { classifier_.read(steps_.along, scores); }

 private:
  Matrix run(Stack& stack) {
    Matrix h = stack.x.take(steps_.n_rows(), embedding_.values().columns);
    embedding_.look_up(stack.words.data(), h);
    for (Lstm& layer : stack.layers) h = layer.forward(steps_, h);
    return h;
  }

  void backpropagate(Stack& stack) {
    for (std::size_t k = stack.layers.size() - 1; k > 0; --k)
      stack.layers[k].backward(steps_, stack.layers[k - 1].take_gradient());
    const Matrix dx = stack.dx.take(steps_.n_rows(), embedding_.values().columns);
    stack.layers[0].backward(steps_, dx);
    embedding_.add_gradient(stack.words, dx);
  }

  Table& embedding_;
  Parameter &W_tag_, &b_tag_;
  Classifier classifier_;
  Stack forward_, backward_;
  Steps steps_;
  Ids labels_;
  Buffer both_memory_, tag_memory_, dtag_memory_, mirrored_memory_;
  Matrix both_, tag_;
};

const Registration<BiLSTM> registration("bilstm");

}  // namespace
