// BiLSTM tagger with characters: the graph of systems/on_dynet/models/sentences.py.
#include "tagger.h"

using namespace dynet;

namespace {

class BiLSTMChar : public Tagger {
 private:
  void build(const std::vector<Column>& columns) override {
    const Column &sizes = columns.at(0), &tags = columns.at(2);
    const std::int32_t *words = columns.at(1).values, *n_letters = columns.at(3).values;
    letter_ = columns.at(4).values;
    embedding_ = table("embedding"), characters_ = table("characters");
    begin_tagger();
    begin(spell_, {"_spell"});
    begin(spell_back_, {"_spell_back"});
    outputs_.reserve(tags.size);
    for (std::int64_t sentence = 0; sentence < sizes.size; ++sentence) {
      Expressions vectors;
      vectors.reserve(sizes.values[sentence]);
      for (const std::int32_t* end = words + sizes.values[sentence]; words < end; ++words) {
        const std::int32_t n = *n_letters++;
        vectors.push_back(n > 0 ? spell(n) : look_up(embedding_, *words));
      }
      score_sentence(vectors);
    }
    add_losses(tags);
  }

  // Returns the vector of a rare word from its letters, the next n.
  Expression spell(std::int32_t n) {
    const Expressions letters = look_up_next(characters_, letter_, n);
    const Expression there = spell_.read(letters.begin(), letters.end()).back();
    return concatenate({there, spell_back_.read(letters.rbegin(), letters.rend()).back()});
  }

  LSTM spell_, spell_back_;
  LookupParameter embedding_, characters_;
  const std::int32_t* letter_ = nullptr;
};

const Registration<BiLSTMChar> bilstm_char("bilstm_char");

}  // namespace
