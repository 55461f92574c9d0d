// Encoder-decoders: the graphs of systems/on_dynet/models/pairs_parser.py, operator by operator.
#include <algorithm>

#include "program.h"

using namespace dynet;

namespace {

// All words are given in advance: one segment.
class Seq2SeqAtOnce : public Program {
 protected:
  struct Decoder {
    RNNPointer state;
    const std::int32_t *word, *last;  // the last word is predicted, but not read
    std::int64_t output;              // of the next step, among all

    bool has_ended() const { return word == last; }
  };

  // Adds the encoders of all pairs, from which their decoders start.
  void encode(const std::vector<Column>& columns) {
    const Column &n_source = columns.at(0), &n_target = columns.at(2);
    const std::int32_t *source = columns.at(1).values, *target = columns.at(3).values;
    begin_side(source_, "source");
    begin_side(target_, "target");
    source_.lstm.start = {weight("c_0"), weight("h_0")};
    target_.lstm.builder.start_new_sequence();
    decoders_.clear();
    std::int64_t output = 0;
    for (std::int64_t pair = 0; pair < n_source.size; ++pair) {
      Expressions vectors = look_up_next(source_.embedding, source, n_source.values[pair]);
      for (Expression& x : vectors) x = source_.transform(x);
      source_.lstm.read(vectors.begin(), vectors.end());
      target_.lstm.builder.set_s(-1, source_.lstm.builder.final_s());
      const std::int32_t* last = target + n_target.values[pair] - 1;
      decoders_.push_back({target_.lstm.builder.state(), target, last, output});
      output += last - target, target = last + 1;
    }
    outputs_.resize(output);
  }

  // Returns the output after the next word.
  Expression step(Decoder& own) {
    VanillaLSTMBuilder& lstm = target_.lstm.builder;
    const Expression x = target_.transform(look_up(target_.embedding, *own.word++));
    const Expression h = lstm.add_input(own.state, x);
    own.state = lstm.state();
    return h;
  }

  std::vector<Decoder> decoders_;

 private:
  // LSTM with the vectors of the words that it reads: tanh(E x + b_E).
  struct Side {
    LSTM lstm;
    LookupParameter embedding;
    Expression b, E;

    Expression transform(const Expression& x) const { return tanh(affine_transform({b, E, x})); }
  };

  void begin_side(Side& side, const std::string& name) {
    begin(side.lstm, {"_" + name});
    side.embedding = table(name + "_embedding");
    side.b = weight("b_E_" + name), side.E = weight("E_" + name);
  }

  void build(const std::vector<Column>& columns) override {
    encode(columns);
    Expressions hidden;
    std::vector<unsigned> labels;
    for (Decoder& own : decoders_) {
      while (!own.has_ended()) {
        hidden.push_back(step(own));
        labels.push_back(*own.word);
      }
    }
    classify(hidden, labels);
  }

  Side source_, target_;
};

// Every segment has the next step of all decoders; the first one also has the encoders.
class Seq2Seq : public Seq2SeqAtOnce {
 private:
  void build(const std::vector<Column>& columns) override {
    encode(columns);
    W_out_ = weight("W_out");
    build_next();
  }

  bool has_next() const override {
    return !std::all_of(decoders_.begin(), decoders_.end(),
                        [](const Decoder& own) { return own.has_ended(); });
  }

  void build_next() override {
    Expressions losses;
    for (Decoder& own : decoders_) {
      if (own.has_ended()) continue;
      const Expression scores = W_out_ * step(own);
      outputs_[own.output++] = scores;
      losses.push_back(pickneglogsoftmax(scores, static_cast<unsigned>(*own.word)));
    }
    add_loss(sum(losses));
  }

  Expression W_out_;
};

const Registration<Seq2Seq> seq2seq("seq2seq");
const Registration<Seq2SeqAtOnce> seq2seq_at_once("seq2seq_at_once");

}  // namespace
