// Language model over sentences of any length (harness/models/var_lstm.py).
#include "lstm.h"

namespace {

class VarLSTM : public Network {
 public:
  VarLSTM(const Weights& weights, bool is_training)
      : Network(weights, is_training), embedding_(take_table("embedding")), classifier_(*this) {
    layers_.emplace_back(*this, "");
    for (int k = 2; has("W_" + std::to_string(k)); ++k)
      layers_.emplace_back(*this, "_" + std::to_string(k));
  }

  void construct(const Columns& columns) override {
    const Column &words = columns.at(1), &labels = columns.at(2);
    steps_.arrange(columns.at(0));
    words_.resize(words.size), labels_.resize(words.size);
    for (Index r = 0; r < words.size; ++r) {
      words_[r] = words.values[steps_.along[r]];
      labels_[r] = labels.values[steps_.along[r]];
    }
  }

  double forward() override {
    Matrix h = x_memory_.take(words_.size(), embedding_.values().columns);
    embedding_.look_up(words_.data(), h);
    for (Lstm& layer : layers_) h = layer.forward(steps_, h);
    return classifier_.forward(h, labels_);
  }

  void backward() override {
    classifier_.backward(layers_.back().take_gradient());
    for (std::size_t k = layers_.size() - 1; k > 0; --k)
      layers_[k].backward(steps_, layers_[k - 1].take_gradient());
    const Matrix dx = dx_memory_.take(words_.size(), embedding_.values().columns);
    layers_[0].backward(steps_, dx);
    embedding_.add_gradient(words_, dx);
  }

  Index n_outputs() const override { return classifier_.size(); }
  void read_outputs(float* scores) override { classifier_.read(steps_.along, scores); }

 private:
  Table& embedding_;
  Classifier classifier_;
  std::deque<Lstm> layers_;
  Steps steps_;
  Ids words_, labels_;
  Buffer x_memory_, dx_memory_;
};

const Registration<VarLSTM> registration("var_lstm");

}  // namespace
