#include "base/option_words.h"
#include "plan/plan.h"

namespace shardscope {

Result<Renamer> Renamer::make(const std::vector<RenameRule>& rules) {
    Renamer renamer;
    for (const RenameRule& rule : rules) {
        auto from = RegularExpression::parse(rule.from);
        if (!from.ok()) {
            Error error = std::move(from).error();
            error.message = option("rename") + " " + error.message;
            return error;
        }
        renamer.rules_.emplace_back(std::move(from).value(), rule.to);
    }
    return renamer;
}

std::string Renamer::operator()(std::string_view name) const {
    std::string out(name);
    for (const auto& [from, to] : rules_)
        out = from.replaceAll(out, to);
    return out;
}

}  // namespace shardscope
