// BiLSTM tagger: the graphs of systems/on_dynet/models/sentences.py, operator by operator.
#include <algorithm>
#include <numeric>

#include "tagger.h"

using namespace dynet;

namespace {

class BiLSTM : public Tagger {
 private:
  void build(const std::vector<Column>& columns) override {
    const Column &sizes = columns.at(0), &tags = columns.at(2);
    const std::int32_t* words = columns.at(1).values;
    const LookupParameter embedding = table("embedding");
    begin_tagger();
    outputs_.reserve(tags.size);
    for (std::int64_t sentence = 0; sentence < sizes.size; ++sentence) {
      score_sentence(look_up_next(embedding, words, sizes.values[sentence]));
    }
    add_losses(tags);
  }
};

// Batched by hand: each step processes all sentences that have not ended.
class BiLSTMSideBySide : public Tagger {
 private:
  using Sentences = std::vector<std::vector<unsigned>>;

  void build(const std::vector<Column>& columns) override {
    const Column& sizes = columns.at(0);
    const std::int32_t* words = columns.at(1).values;
    Sentences sentences;
    for (std::int64_t k = 0; k < sizes.size; words += sizes.values[k++]) {
      sentences.emplace_back(words, words + sizes.values[k]);
    }
    begin_tagger();
    const Expression there = read_side_by_side(forward_, sentences, false);
    const Expression back = read_side_by_side(backward_, sentences, true);
    outputs_ = {compute_logits(there, back)};
    add_loss(sum_batches(pickneglogsoftmax(outputs_[0], as_labels(columns.at(2)))));
  }

  // Returns the outputs of an LSTM as a mini-batch of all words, in order. The longest sentence
  // comes first, and a sentence that has ended leaves the mini-batch.
  Expression read_side_by_side(LSTM& lstm, const Sentences& sentences, bool reversed) {
    std::vector<unsigned> ranks(sentences.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::stable_sort(ranks.begin(), ranks.end(), [&](unsigned a, unsigned b) {
      return sentences[a].size() > sentences[b].size();
    });
    const LookupParameter embedding = table("embedding");
    std::size_t n_going = ranks.size();
    Expressions starting, outputs;
    for (const Expression& state : lstm.start) {
      starting.push_back(concatenate_to_batch(Expressions(n_going, state)));
    }
    lstm.builder.start_new_sequence(starting);
    std::vector<std::vector<unsigned>> rows(sentences.size());  // of every word in the outputs
    unsigned n_rows = 0;
    for (std::size_t step = 0; step < sentences[ranks[0]].size(); ++step) {
      if (sentences[ranks[n_going - 1]].size() <= step) {
        while (sentences[ranks[n_going - 1]].size() <= step) --n_going;
        keep_first(lstm.builder, n_going);
      }
      std::vector<unsigned> words;
      for (std::size_t k = 0; k < n_going; ++k) {
        const std::vector<unsigned>& own = sentences[ranks[k]];
        words.push_back(own[reversed ? own.size() - 1 - step : step]);
        rows[ranks[k]].push_back(n_rows++);
      }
      outputs.push_back(lstm.builder.add_input(look_up(embedding, words)));
    }
    std::vector<unsigned> in_order;
    for (std::vector<unsigned>& own : rows) {
      if (reversed) std::reverse(own.begin(), own.end());
      in_order.insert(in_order.end(), own.begin(), own.end());
    }
    return pick_batch_elems(concatenate_to_batch(outputs), in_order);
  }

  static void keep_first(VanillaLSTMBuilder& lstm, std::size_t n) {
    std::vector<unsigned> going(n);
    std::iota(going.begin(), going.end(), 0);
    Expressions kept;
    for (const Expression& state : lstm.final_s()) kept.push_back(pick_batch_elems(state, going));
    lstm.set_s(lstm.state(), kept);
  }
};

const Registration<BiLSTM> bilstm("bilstm");
const Registration<BiLSTMSideBySide> bilstm_manual("bilstm_manual");

}  // namespace
