#include <regex>

#include <fmt/format.h>

#include "plan/plan.h"

namespace shardscope {
namespace {

// The standard library's expressions recurse along the text, so overlong names stay as they are.
constexpr size_t kLongestName = 4096;

}  // namespace

Result<Renamer> Renamer::make(const std::vector<RenameRule>& rules) {
    Renamer renamer;
    for (const RenameRule& rule : rules) {
        try {
            renamer.rules_.emplace_back(std::make_shared<const std::regex>(rule.from), rule.to);
        } catch (const std::regex_error& e) {
            return makeError(ErrorCode::usage, fmt::format("--rename '{}' is not a regular expression: {}",
                                                           rule.from, e.what()));
        }
    }
    return renamer;
}

std::string Renamer::operator()(std::string_view name) const {
    std::string out(name);
    for (const auto& [from, to] : rules_) {
        if (out.size() > kLongestName) break;
        out = std::regex_replace(out, *static_cast<const std::regex*>(from.get()), to);
    }
    return out;
}

}  // namespace shardscope
