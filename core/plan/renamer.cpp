#include <regex>

#include <fmt/format.h>

#include "plan/plan.h"

namespace shardscope {

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
    for (const auto& [from, to] : rules_)
        out = std::regex_replace(out, *static_cast<const std::regex*>(from.get()), to);
    return out;
}

}  // namespace shardscope
