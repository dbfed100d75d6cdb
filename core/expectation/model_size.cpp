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
#include "base/units.h"

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
    Counting(const ModelSize& size, const std::string& stated, const Catalog& catalog, Counted counted)
        : size_(size),
          stated_(printable(stated, kNameInMessage)),
          catalog_(catalog),
          exactly_(counted == Counted::exactly) {}

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
        static const RegularExpression expert =
            expression(R"((.*)\.experts\.(?:deepspeed_experts\.)?([0-9]+)\.(.*))");
        static const RegularExpression router =
            expression(R"((.*)\.(?:gate|gate\.wg|router|router\.layer)\.weight)");
        static const RegularExpression stacked =
            expression(R"(.*\.experts\.[a-z_]+(?:_bias|_blocks|_scales)?)");
        static const RegularExpression rows = expression(R"((?:.*\.)?(?:embed_tokens|wte|lm_head)\.weight)");
        const std::string name(catalog_.name(t));
        const DimSpan shape = catalog_.shape(t);
        std::vector<std::string_view> groups;
        if (layer.matchWhole(name, groups)) countLayer(name, groups[1], parseNumber<int64_t>(groups[2]));
        if (expert.matchWhole(name, groups))
            countExpert(name, {std::string(groups[1]), std::string(groups[3])},
                        parseNumber<int64_t>(groups[2]));
        else if (router.matchWhole(name, groups) && shape.size() == 2)
            routers_[std::string(groups[1])] = shape[0];
        else if (exactly_ && size_.experts && stacked.matchesWhole(name) &&
                 (shape.empty() || shape[0] != *size_.experts))
            add(name, fmt::format("its shape is {}, '{}' has {}", formatDims(shape), stated_,
                                  counted(*size_.experts, "expert")));
        if (size_.vocabulary && rows.matchesWhole(name)) countRows(name, shape);
    }

    void countLayer(const std::string& name, std::string_view group, std::optional<int64_t> number) {
        if (!number) return;
        layers_[std::string(group)].insert(*number);
        if (exactly_ && size_.layers && *number >= *size_.layers + size_.further)
            add(name, fmt::format("'{}' has {}", stated_, counted(*size_.layers, "layer")));
    }

    void countExpert(const std::string& name, std::pair<std::string, std::string> of,
                     std::optional<int64_t> number) {
        if (!number) return;
        experts_[std::move(of)].insert(*number);
        if (exactly_ && size_.experts && *number >= *size_.experts)
            add(name, fmt::format("'{}' has {}", stated_, counted(*size_.experts, "expert")));
    }

    void countRows(const std::string& name, DimSpan shape) {
        const int64_t wanted = *size_.vocabulary, here = shape.empty() ? 0 : shape[0];
        const bool piece = here > 0 && here < wanted && wanted % here == 0;
        if (piece || (exactly_ && here != wanted))
            add(name, fmt::format("its shape is {}, '{}' has a vocabulary of {}{}", formatDims(shape),
                                  stated_, wanted, piece ? ": a rank's shard" : ""));
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
            std::string says = fmt::format("of which '{}' has {}", stated_, count.value_or(0));
            if (!count && router != routers_.end() && router->second <= kMostCounted) {
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
    const bool exactly_;
    std::map<std::string, std::set<int64_t>> layers_;  // by what stands before "layers"
    std::map<std::pair<std::string, std::string>, std::set<int64_t>> experts_;
    std::map<std::string, int64_t> routers_;  // rows, by the module that has experts, too
    std::vector<Note> notes_;
};

}  // namespace

ModelSize modelSizeOf(const nlohmann::json& config) {
    if (!config.is_object()) return {};
    ModelSize size;
    size.layers = numberOf(config, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
    size.experts =
        numberOf(config, {"num_experts", "num_local_experts", "n_routed_experts", "num_moe_experts"});
    size.vocabulary = numberOf(config, {"vocab_size"});
    // Marian's decoder may have another one than its encoder.
    if (const auto other = numberOf(config, {"decoder_vocab_size"}); other && other != size.vocabulary)
        size.vocabulary.reset();
    size.further = numberOf(config, {"num_nextn_predict_layers"}).value_or(0);
    return size;
}

std::vector<Note> modelSizeNotes(const ModelSize& size, const std::string& stated, const Catalog& catalog,
                                 Counted counted) {
    return Counting(size, stated, catalog, counted).notes();
}

}  // namespace shardscope
