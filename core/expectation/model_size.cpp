#include "expectation/model_size.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/regular_expression.h"
#include "base/rule.h"
#include "base/text.h"

namespace shardscope {

namespace {

constexpr int64_t kMostCounted = 1 << 20;  // a configuration is data from outside

std::optional<int64_t> numberOf(const nlohmann::json& config, std::initializer_list<const char*> keys) {
    const auto text = config.find("text_config");
    for (const nlohmann::json* from : {&config, text == config.end() ? nullptr : &*text}) {
        if (!from || !from->is_object()) continue;
        for (const char* key : keys) {
            const auto found = from->find(key);
            if (found == from->end() || !found->is_number_integer()) continue;
            const auto number = found->get<int64_t>();
            if (number > 0 && number <= kMostCounted) return number;
        }
    }
    return std::nullopt;
}

// Which of 0 to count-1 are not there: "3, 5, 6 and 12 more".
std::string missingOf(const std::set<int64_t>& found, int64_t count) {
    std::vector<int64_t> some;
    int64_t missing = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (found.contains(i)) continue;
        if (++missing <= 5) some.push_back(i);
    }
    if (missing == 0) return {};
    return fmt::format("{}{}", fmt::join(some, ", "),
                       missing > 5 ? fmt::format(" and {} more", missing - 5) : "");
}

RegularExpression expression(std::string_view pattern) {
    return RegularExpression::parse(pattern).value();
}

class Counting {
  public:
    Counting(const ModelSize& size, const std::string& stated, const Catalog& catalog)
        : size_(size), stated_(printable(stated, kNameInMessage)), catalog_(catalog) {}

    std::vector<Note> notes() && {
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t)
            if (catalog_.role(t) == Role::parameter) count(t);
        checkLayers();
        checkExperts();
        return std::move(notes_);
    }

  private:
    void count(TensorId t) {
        static const RegularExpression layer = expression(R"((.*\.)?(?:layers|h)\.([0-9]+)\..*)");
        static const RegularExpression expert = expression(R"((.*)\.experts\.([0-9]+)\.(.*))");
        static const RegularExpression router = expression(R"((.*)\.(?:gate|router|router\.layer)\.weight)");
        static const RegularExpression rows = expression(R"((?:.*\.)?(?:embed_tokens|wte|lm_head)\.weight)");
        const std::string_view name = catalog_.name(t);
        const DimSpan shape = catalog_.shape(t);
        std::vector<std::string_view> groups;
        if (layer.matchWhole(name, groups))
            if (const auto number = parseNumber<int64_t>(groups[2])) layers_[groups[1]].insert(*number);
        if (expert.matchWhole(name, groups)) {
            if (const auto number = parseNumber<int64_t>(groups[2]))
                experts_[{groups[1], groups[3]}].insert(*number);
        } else if (router.matchWhole(name, groups) && shape.size() == 2) {
            routers_[groups[1]] = shape[0];
        }
        if (size_.vocabulary && rows.matchesWhole(name) && !shape.empty() && shape[0] < *size_.vocabulary &&
            shape[0] > 0 && *size_.vocabulary % shape[0] == 0)
            add(std::string(name), fmt::format("it has {} rows, '{}' has a vocabulary of {}: a rank's piece",
                                               shape[0], stated_, *size_.vocabulary));
    }

    // A model of several towers has several groups of layers; the largest is the one that is meant.
    void checkLayers() {
        if (!size_.layers || layers_.empty()) return;
        const auto most =
            std::ranges::max_element(layers_, {}, [](const auto& group) { return group.second.size(); });
        if (const std::string missing = missingOf(most->second, *size_.layers); !missing.empty())
            add("",
                fmt::format("no tensor of layer {}, of which '{}' has {}", missing, stated_, *size_.layers));
    }

    void checkExperts() {
        for (const auto& [of, found] : experts_) {
            const auto router = routers_.find(of.first);
            std::optional<int64_t> count = size_.experts;
            std::string says = fmt::format("'{}' has {}", stated_, count.value_or(0));
            if (router != routers_.end() && router->second <= kMostCounted) {
                count = router->second;
                says = fmt::format("the router chooses among {}", *count);
            }
            const std::string missing = count ? missingOf(found, *count) : std::string();
            if (!missing.empty())
                add(fmt::format("{}.experts.N.{}", of.first, of.second),
                    fmt::format("no tensor of expert {}, {}", missing, says));
        }
    }

    void add(std::string tensor, std::string message) {
        Note note;
        note.rule = rule::expectMissing;
        note.severity = Severity::error;
        note.tensor = std::move(tensor);
        note.message = std::move(message);
        notes_.push_back(std::move(note));
    }

    const ModelSize& size_;
    const std::string stated_;
    const Catalog& catalog_;
    std::map<std::string_view, std::set<int64_t>> layers_;  // by what stands before "layers"
    std::map<std::pair<std::string_view, std::string_view>, std::set<int64_t>> experts_;
    std::map<std::string_view, int64_t> routers_;  // rows, by the module that has experts, too
    std::vector<Note> notes_;
};

}  // namespace

ModelSize modelSizeOf(const nlohmann::json& config) {
    if (!config.is_object()) return {};
    ModelSize size;
    size.layers = numberOf(config, {"num_hidden_layers", "n_layer", "n_layers"});
    size.experts = numberOf(config, {"num_experts", "num_local_experts", "n_routed_experts"});
    size.vocabulary = numberOf(config, {"vocab_size"});
    size.further = numberOf(config, {"num_nextn_predict_layers"}).value_or(0);
    return size;
}

std::vector<Note> modelSizeNotes(const ModelSize& size, const std::string& stated, const Catalog& catalog) {
    return Counting(size, stated, catalog).notes();
}

}  // namespace shardscope
