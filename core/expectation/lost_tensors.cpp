#include "expectation/lost_tensors.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"

namespace shardscope {

namespace {

bool holdsTensors(const StepFile& file) {
    const std::string_view name = lastName(file.path);
    if (name == ".zarray" || name == "zarr.json") return true;  // the description of an array
    const StepPart part = stepPartOf(name);
    return !name.ends_with(".json") && isStateFile(name) &&
           (part == StepPart::weights || part == StepPart::optimizer || part == StepPart::unknown);
}

// Counts of steps have one name for all ranks or one for each, by what else was saved.
bool isCounter(DimSpan shape) {
    return std::ranges::all_of(shape, [](int64_t length) { return length == 1; });
}

class Comparison {
  public:
    Comparison(const Catalog& catalog, const Catalog& earlier, std::string_view name)
        : catalog_(catalog), earlier_(earlier), name_(printable(name, kNameInMessage)) {
        for (TensorId t = 0; t < earlier.tensorCount(); ++t)
            if (earlier.aliasOf(t) != kNone) tied_.insert({t, earlier.aliasOf(t)});
    }

    std::vector<Note> notes() && {
        compare(Role::parameter, Severity::error);
        compare(Role::optimizer, Severity::warning);
        return std::move(notes_);
    }

  private:
    void compare(Role role, Severity severity) {
        std::vector<Note> found;
        size_t had = 0, common = 0;
        for (TensorId e = 0; e < earlier_.tensorCount(); ++e) {
            if (earlier_.role(e) != role || tied_.contains(e)) continue;  // one of the names may go
            if (role == Role::optimizer && isCounter(earlier_.shape(e))) continue;
            ++had;
            const TensorId t = catalog_.find(earlier_.name(e));
            if (t == kNone) {
                found.push_back(noteOf(rule::stateMissing, severity, e,
                                       fmt::format("it is not here, '{}' before has it", name_)));
                continue;
            }
            ++common;
            if (role == Role::parameter && !std::ranges::equal(catalog_.shape(t), earlier_.shape(e)))
                found.push_back(
                    noteOf(rule::stateDiffers, severity, e,
                           fmt::format("its shape is {}, in '{}' before {}", formatDims(catalog_.shape(t)),
                                       name_, formatDims(earlier_.shape(e)))));
        }
        if (common == 0 || found.size() * 2 > had) return;
        std::ranges::move(found, std::back_inserter(notes_));
    }

    Note noteOf(const char* rule, Severity severity, TensorId e, std::string message) const {
        Note note;
        note.rule = rule;
        note.severity = severity;
        note.tensor = earlier_.name(e);
        note.message = std::move(message);
        return note;
    }

    const Catalog& catalog_;
    const Catalog& earlier_;
    const std::string name_;
    std::set<TensorId> tied_;  // tensors with several names
    std::vector<Note> notes_;
};

}  // namespace

bool sizesDiffer(const StepContents& step, const StepContents& earlier) {
    return std::ranges::any_of(earlier.files, [&](const StepFile& file) {
        if (!holdsTensors(file)) return false;
        const StepFile* here = step.find(file.path);
        return !here || here->size != file.size;
    });
}

std::vector<Note> lostTensorNotes(const Catalog& catalog, const Catalog& earlier, std::string_view name) {
    return Comparison(catalog, earlier, name).notes();
}

}  // namespace shardscope
