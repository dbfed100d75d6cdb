#include "base/similar.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace shardscope {
namespace {

constexpr size_t kMostErrors = 3;

// Typing errors between two words, or more than `most` where they are more.
size_t errorsBetween(std::string_view a, std::string_view b, size_t most) {
    const size_t begin = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    a.remove_prefix(begin);
    b.remove_prefix(begin);
    if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > most) return most + 1;
    std::vector<size_t> before, row(b.size() + 1), next(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        next[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                next[j] = std::min(next[j], before[j - 2] + 1);
        }
        if (std::ranges::min(next) > most) return most + 1;
        before = row;
        std::swap(row, next);
    }
    return row[b.size()];
}

}  // namespace

Similar::Similar(std::string_view word) : word_(word), most_(std::min(kMostErrors, word.size() / 3)) {}

void Similar::see(std::string_view candidate) {
    if (most_ == 0) return;
    const size_t errors = errorsBetween(word_, candidate, most_);
    if (errors > most_) return;
    best_ = candidate;
    if (errors == 0) return void(most_ = 0);  // nothing is better
    most_ = errors - 1;
}

std::string didYouMean(std::string_view word, const std::vector<std::string>& candidates) {
    Similar similar(word);
    for (const std::string& candidate : candidates)
        similar.see(candidate);
    return similar.best().empty() ? std::string() : "did you mean '" + similar.best() + "'?";
}

}  // namespace shardscope
