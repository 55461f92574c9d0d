// Taggers: LSTMs in both directions, with tanh and a classifier on top (class Tagger of
// systems/on_dynet/models/sentences.py).
#pragma once

#include "program.h"

class Tagger : public Program {
 protected:
  // Adds the parameters to a new graph.
  void begin_tagger() {
    begin_direction(forward_, "_forward");
    begin_direction(backward_, "_backward");
    b_ = weight("b_tag"), W_forward_ = weight("W_tag.0"), W_backward_ = weight("W_tag.1");
    W_out_ = weight("W_out");
  }

  // Adds the scores of all words of a sentence, from the words' vectors.
  void score_sentence(const Expressions& vectors) {
    const Expressions there = forward_.read(vectors.begin(), vectors.end());
    const Expressions back = backward_.read(vectors.rbegin(), vectors.rend());
    for (std::size_t k = 0; k < there.size(); ++k) {
      outputs_.push_back(compute_logits(there[k], back[back.size() - 1 - k]));
    }
  }

  // Adds the loss of all words that were scored.
  void add_losses(const Column& tags) {
    Expressions losses;
    losses.reserve(outputs_.size());
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      losses.push_back(pickneglogsoftmax(outputs_[k], static_cast<unsigned>(tags.values[k])));
    }
    add_loss(sum(losses));
  }

  Expression compute_logits(const Expression& h_forward, const Expression& h_backward) const {
    return W_out_ * tanh(dynet::affine_transform(
                        {b_, W_forward_, h_forward, W_backward_, h_backward}));
  }

  LSTM forward_, backward_;

 private:
  void begin_direction(LSTM& lstm, const std::string& name) {
    const std::vector<std::string> suffixes = list_layers(name);
    begin(lstm, suffixes);
    lstm.start.clear();
    for (const std::string state : {"c_0", "h_0"}) {
      for (const std::string& suffix : suffixes) lstm.start.push_back(weight(state + suffix));
    }
  }

  Expression b_, W_forward_, W_backward_, W_out_;
};
