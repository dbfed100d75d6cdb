// What a word that nobody knows was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardscope {

// Finds the candidate with the fewest typing errors: letters left out, added, exchanged or swapped. More than
// three, or than a third of the word, are another word.
class Similar {
  public:
    explicit Similar(std::string_view word);
    void see(std::string_view candidate);
    const std::string& best() const { return best_; }  // the first of the best; empty = none

  private:
    const std::string word_;
    size_t most_;  // errors that are worth a look
    std::string best_;
};

// "did you mean 'files'?"; empty where none is like it.
std::string didYouMean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace shardscope
