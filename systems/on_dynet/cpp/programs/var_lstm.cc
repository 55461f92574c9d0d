// Language model: the graph of systems/on_dynet/models/sentences.py, operator by operator.
#include "program.h"

using namespace dynet;

namespace {

class VarLSTM : public Program {
 private:
  void build(const std::vector<Column>& columns) override {
    const Column& sizes = columns.at(0);
    const std::int32_t* words = columns.at(1).values;
    const LookupParameter embedding = table("embedding");
    LSTM lstm;
    begin(lstm, list_layers(""));
    Expressions hidden;
    hidden.reserve(columns.at(1).size);
    for (std::int64_t sentence = 0; sentence < sizes.size; ++sentence) {
      const Expressions vectors = look_up_next(embedding, words, sizes.values[sentence]);
      const Expressions outputs = lstm.read(vectors.begin(), vectors.end());
      hidden.insert(hidden.end(), outputs.begin(), outputs.end());
    }
    classify(hidden, as_labels(columns.at(2)));
  }
};

const Registration<VarLSTM> var_lstm("var_lstm");

}  // namespace
