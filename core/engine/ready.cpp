#include "engine/ready.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/masters.h"
#include "engine/recipe_fit.h"
#include "engine/run_directory.h"
#include "engine/run_verdicts.h"
#include "engine/step_number.h"
#include "expectation/agreement.h"
#include "expectation/contract.h"

namespace shardscope {

namespace {

// What reads the checkpoint as it is. Sources: docs/formats.
std::string readBy(const Checkpoint& checkpoint, const Contract& contract, uint32_t ranks) {
    const std::string& format = checkpoint.catalog().format();
    if (contract.framework == "Hugging Face Trainer" || contract.framework == "Accelerate")
        return fmt::format("{} as it is", contract.framework);
    if (contract.framework == "Megatron-Bridge") return "Megatron-Bridge on any parallel layout";
    if (format == "dcp") return "torch DCP on any number of ranks";
    if (format == "megatron" && checkpoint.catalog().variant() != "torch")
        return "Megatron-Core on any parallel layout";
    if (format == "orbax") return "Orbax on any mesh";
    if (format == "safetensors") return "transformers and others that read safetensors";
    if (format == "torch") return "torch.load";
    if (format == "paddle") return "Paddle's load_state_dict on any number of ranks";
    const auto& mesh = checkpoint.catalog().mesh();
    const std::string as = mesh ? formatMesh(*mesh) : counted(ranks, "rank");
    return fmt::format("{} on {} only, as it was saved", checkpoint.format->info().title, as);
}

// Whether the names of the weights are such that `convert --to hf` may make a model of them.
bool mayBecomeModel(const Catalog& catalog) {
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.role(t) != Role::parameter) continue;
        const std::string_view name = catalog.name(t);
        if (name.find("decoder.layers.") != name.npos && name.find("linear_") != name.npos) return true;
        for (const std::string_view known : {"model.layers.", "model.embed_tokens.", "transformer.h."})
            if (name.find(known) != name.npos) return true;
    }
    return false;
}

std::string loadsIn(const Checkpoint& checkpoint, const Contract& contract, uint32_t ranks) {
    std::string text = readBy(checkpoint, contract, ranks);
    const bool pieces = text.ends_with("as it was saved");
    if (pieces) text += "; on others after resharding";
    const Catalog& catalog = checkpoint.catalog();
    if (catalog.format() != "safetensors" && mayBecomeModel(catalog))
        text += modelBeside(checkpoint).empty()
                    ? "; transformers after a conversion to Hugging Face with the model's config.json"
                    : "; transformers after a conversion to Hugging Face";
    return text;
}

// The largest share of one rank.
uint64_t mostOfARank(const Catalog& catalog) {
    std::map<uint32_t, uint64_t> bytes;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (catalog.aliasOf(t) != kNone) continue;
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            bytes[chunk.rank] += static_cast<uint64_t>(chunk.elements()) * dtypeBits(catalog.dtype(t)) / 8;
        }
    }
    uint64_t most = 0;
    for (const auto& [rank, held] : bytes)
        most = std::max(most, held);
    return most;
}

class Card {
  public:
    Card(const Checkpoint& checkpoint, const ValidationReport& report,
         const std::vector<Suppression>& accepted)
        : checkpoint_(checkpoint), catalog_(checkpoint.catalog()), report_(report), accepted_(accepted) {
        const std::string root = checkpoint.root.empty() ? checkpoint.path : checkpoint.root;
        if (const auto source = sourceFor(root, IoMode::automatic, checkpoint.fileSystem);
            source.ok() && !checkpoint.root.empty()) {
            if (auto listed = listContents(*source->directory, ""); listed.ok()) step_ = *std::move(listed);
            directory_ = source->directory;
        }
        step_.name = splitPath(root).second;
        step_.isStep = isStepName(step_.name);
        card_.path = root;
    }

    ReadyCard make() && {
        card_.level = report_.level;
        card_.verdict = verdictWithout(report_, accepted_);
        addWeights();
        addOptimizer();
        addMasters();
        addStep();
        addState(StepPart::scheduler, "scheduler", "learning rate and scheduler", "scheduler");
        addRandom();
        addState(StepPart::loader, "loader", "data loader", "dataloader");
        addCommit();
        addLine("loads_in", "loads in", ReadyMark::yes,
                loadsIn(checkpoint_, contractOf(step_), catalog_.rankCount()));
        addFits();
        judge();
        return std::move(card_);
    }

  private:
    ReadyLine& addLine(std::string id, std::string title, ReadyMark mark, std::string text,
                       std::string evidence = {}) {
        card_.lines.push_back(
            {std::move(id), std::move(title), mark, std::move(text), std::move(evidence), {}, {}});
        return card_.lines.back();
    }

    // What a finding is about: the roles of its tensors, else what its file holds.
    std::set<StepPart> aboutOf(const Finding& finding) const {
        std::set<StepPart> parts;
        for (const FindingExample& example : finding.examples) {
            if (const TensorId t = catalog_.find(example.tensor); t != kNone) {
                parts.insert(catalog_.role(t) == Role::optimizer ? StepPart::optimizer : StepPart::weights);
            } else if (!example.file.empty()) {
                const StepPart part = stepPartOf(lastName(example.file));
                parts.insert(isState(part) ? part : StepPart::weights);
            }
        }
        if (parts.empty()) parts.insert(StepPart::weights);
        return parts;
    }

    // The first finding against a part; null = none.
    const Finding* against(StepPart part) const {
        for (const Finding& finding : report_.findings) {
            const bool counts = finding.severity == Severity::error || finding.rule == rule::saveMixed ||
                                finding.rule == rule::saveTorn ||
                                (finding.severity == Severity::warning && finding.rule == rule::fileMissing);
            if (counts && !suppressionOf(finding, accepted_) && aboutOf(finding).contains(part))
                return &finding;
        }
        return nullptr;
    }

    static std::string evidenceOf(const Finding& finding) {
        return fmt::format("{}: {}", finding.rule, finding.message);
    }

    void link(ReadyLine& line, const Finding& finding) const {
        line.mark = ReadyMark::no;
        line.evidence = evidenceOf(finding);
        if (!finding.examples.empty()) {
            line.tensor = finding.examples[0].tensor;
            line.file = finding.examples[0].file;
        }
    }

    // "290 of 291 tensors": how many of a role no error names. Empty when the checkpoint has none of it.
    std::string countOf(bool optimizer) const {
        std::set<std::string_view> hurt;
        size_t lacking = 0, all = 0;
        bool more = false;  // than the report names
        for (const Finding& finding : report_.findings) {
            if (finding.severity != Severity::error || suppressionOf(finding, accepted_)) continue;
            if (finding.rule == rule::expectMissing && !optimizer) lacking += finding.count;
            more = more || finding.count > finding.examples.size();
            for (const FindingExample& example : finding.examples)
                if (!example.tensor.empty()) hurt.insert(example.tensor);
        }
        size_t whole = 0;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t) {
            const Role role = catalog_.role(t);
            if ((role == Role::optimizer) != optimizer || role == Role::other) continue;
            ++all;
            whole += !hurt.contains(catalog_.name(t));
        }
        if (all == 0) return {};
        const bool atMost = more && whole < all;
        return fmt::format("{}{} of {}", atMost ? "at most " : "", countText(whole),
                           counted(all + lacking, "tensor"));
    }

    void addWeights() {
        const std::string count = countOf(false);
        ReadyLine& line = addLine("weights", "weights", count.empty() ? ReadyMark::no : ReadyMark::yes,
                                  count.empty() ? "none" : count);
        if (const Finding* finding = against(StepPart::weights)) link(line, *finding);
    }

    void addOptimizer() {
        const std::string count = countOf(true);
        ReadyLine& line =
            addLine("optimizer", "optimizer state", count.empty() ? ReadyMark::none : ReadyMark::yes,
                    count.empty() ? "not saved" : count);
        if (const size_t owners = parametersWithState(catalog_); owners > 0)
            line.text += fmt::format(", of {}", counted(owners, "parameter"));
        if (const Finding* finding = against(StepPart::optimizer)) link(line, *finding);
    }

    void addMasters() {
        const std::vector<TensorId> masters = mastersOf(catalog_);
        const auto count = std::ranges::count_if(masters, [](TensorId t) { return t != kNone; });
        if (count > 0) {
            addLine("masters", "fp32 master weights", ReadyMark::yes,
                    fmt::format("of {}", counted(static_cast<uint64_t>(count), "weight")));
            return;
        }
        bool small = false;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t)
            small = small || (catalog_.role(t) == Role::parameter && dtypeIsFloat(catalog_.dtype(t)) &&
                              dtypeBits(catalog_.dtype(t)) < 32);
        addLine("masters", "fp32 master weights", ReadyMark::none,
                small ? "none: the weights are as exact as they are stored" : "not needed: weights are fp32");
    }

    // Its number inside, else that of its name.
    void addStep() {
        ReadyLine& line = addLine("step", "step", ReadyMark::none, "not known");
        if (const auto stated = statedStep(checkpoint_, directory_.get(), step_)) {
            line.mark = ReadyMark::yes;
            line.text = std::to_string(stated->step);
            if (const auto named = stepNumber(step_.name); named && *named != stated->step)
                line.text += fmt::format(" (the name says {})", *named);
            line.evidence = printable(stated->where, kNameInMessage);
        }
        if (line.mark == ReadyMark::none && step_.isStep) {
            line.mark = ReadyMark::yes;
            line.text = fmt::format("that of '{}'", printable(step_.name, kNameInMessage));
            line.evidence = "the name of the directory";
        }
        if (const Finding* finding = against(StepPart::progress)) link(line, *finding);
    }

    // Files of a part, or entries of the checkpoint whose names have a word.
    size_t filesOf(StepPart part) const {
        return static_cast<size_t>(std::ranges::count_if(
            step_.files, [&](const StepFile& file) { return stepPartOf(lastName(file.path)) == part; }));
    }
    std::string entryWith(std::string_view word) const {
        for (const ObjectInfo& object : catalog_.objects())
            if (object.name.find(word) != std::string::npos) return object.name;
        for (TensorId t = 0; t < catalog_.tensorCount(); ++t)
            if (catalog_.role(t) == Role::other && catalog_.name(t).find(word) != std::string_view::npos)
                return std::string(catalog_.name(t));
        return {};
    }

    void addState(StepPart part, std::string id, std::string title, std::string_view word) {
        const size_t files = filesOf(part);
        const std::string entry = files ? std::string() : entryWith(word);
        ReadyLine& line = addLine(
            std::move(id), std::move(title), files || !entry.empty() ? ReadyMark::yes : ReadyMark::none,
            files || !entry.empty() ? "saved" : "not saved", printable(entry, kNameInMessage));
        for (const StepFile& file : step_.files) {
            if (stepPartOf(lastName(file.path)) != part) continue;
            line.file = file.path;
            line.evidence = file.path;
            break;
        }
        if (const Finding* finding = against(part)) link(line, *finding);
    }

    void addRandom() {
        addState(StepPart::random, "random", "random states", "rng");
        ReadyLine& line = card_.lines.back();
        const size_t files = filesOf(StepPart::random);
        if (files > 0 && line.mark == ReadyMark::yes)
            line.text = fmt::format("of {}", counted(files, "rank"));
    }

    void addCommit() {
        const Contract& contract = contractOf(step_);
        std::string mark = std::string(contract.last);
        if (mark.empty())
            for (const char* name :
                 {".metadata", "commit_success.txt", "_CHECKPOINT_METADATA", "metadata.json"})
                if (step_.has(fmt::format("{}|*/{}", name, name)) && mark.empty()) mark = name;
        const bool there = !mark.empty() && step_.has(fmt::format("{}|*/{}", mark, mark));
        const bool away = !checkpoint_.reader->dataElsewhere().empty();
        addLine("commit", "commit", there ? ReadyMark::yes : ReadyMark::none,
                there  ? "the file that is written last is here"
                : away ? "not known: the files are not here"
                       : "nothing marks the end of the save",
                there ? mark : std::string());
    }

    void addFits() {
        const uint32_t ranks = std::max(catalog_.rankCount(), 1U);
        const uint64_t most = mostOfARank(catalog_), all = catalog_.totalBytes();
        std::string text = fmt::format("{} of tensors on {}{}", bytesText(most), counted(ranks, "rank"),
                                       ranks == 1 ? "" : ", the fullest one");
        for (const uint32_t others : {ranks * 2, ranks / 2})
            if (others > 0 && others != ranks)
                text +=
                    fmt::format("; {} on {} if sharded evenly", bytesText(all / others), countText(others));
        addLine("fits_on", "fits on", ReadyMark::yes, std::move(text));
    }

    void judge() {
        const auto line = [&](std::string_view id) -> const ReadyLine& {
            return *std::ranges::find(card_.lines, id, &ReadyLine::id);
        };
        StepVerdict verdict;
        verdict.report = report_;
        verdict.accepted = accepted_;
        const Finding* reason = verdict.reason();
        const bool weights = line("weights").mark == ReadyMark::yes;
        const bool optimizer = line("optimizer").mark == ReadyMark::yes;
        card_.resumes = !reason && weights && optimizer;
        if (reason)
            card_.words = "do not resume: " + reason->message;
        else if (!weights)
            card_.words = "do not resume: no weights are here";
        else if (!optimizer)
            card_.words = "weights only: nothing to resume, fine to load";
        else if (card_.verdict == Verdict::care)
            card_.words = "resume from here, with care: see the warnings of 'validate'";
        else if (line("step").mark != ReadyMark::yes)
            card_.words = "whole: no step to resume at is recorded";
        else
            card_.words = "resume from here";
    }

    const Checkpoint& checkpoint_;
    const Catalog& catalog_;
    const ValidationReport& report_;
    const std::vector<Suppression>& accepted_;
    std::shared_ptr<const Directory> directory_;  // of the step; null where a file was named
    StepContents step_;
    ReadyCard card_;
};

}  // namespace

std::string_view readyMarkName(ReadyMark mark) {
    return mark == ReadyMark::yes ? "yes" : mark == ReadyMark::no ? "no" : "none";
}

ReadyCard readyCard(const Checkpoint& checkpoint, const ValidationReport& report,
                    const std::vector<Suppression>& accepted) {
    return Card(checkpoint, report, accepted).make();
}

std::string readyJson(const ReadyCard& card) {
    const auto orNull = [](const std::string& text) {
        return text.empty() ? nlohmann::json() : nlohmann::json(text);
    };
    nlohmann::json lines = nlohmann::json::array();
    for (const ReadyLine& line : card.lines)
        lines.push_back({{"id", line.id},
                         {"title", line.title},
                         {"mark", readyMarkName(line.mark)},
                         {"text", line.text},
                         {"evidence", orNull(line.evidence)},
                         {"tensor", orNull(line.tensor)},
                         {"file", orNull(line.file)}});
    return dumpJson(nlohmann::json{{"schema", "shardscope.ready/1"},
                                   {"path", card.path},
                                   {"resumes", card.resumes},
                                   {"words", card.words},
                                   {"verdict", verdictName(card.verdict)},
                                   {"level", levelName(card.level)},
                                   {"lines", std::move(lines)}});
}

}  // namespace shardscope
