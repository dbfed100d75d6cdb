#include "expectation/contents.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/rule.h"
#include "base/text.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

constexpr uint64_t kMostJson = uint64_t{64} << 20;
constexpr uint64_t kMostHead = 4096;
constexpr size_t kMostLooks = 4096;  // files of a step

bool isPickled(std::string_view name) {
    return fitsGlobs("*.pt|*.pth|*.bin|*.pkl|*.ckpt|*.safetensors|*.pdparams|*.pdopt|*.msgpack|*.npz", name);
}

bool isZeros(std::string_view bytes) {
    return std::ranges::all_of(bytes, [](char c) { return c == 0; });
}

// The last byte of a pickle is the opcode STOP.
bool isCutPickle(const Directory& directory, const StepFile& file, std::string_view head) {
    if (head.size() < 2 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) return false;
    const auto opened = directory.openFile(file.path);
    std::byte last{};
    return opened.ok() && (*opened)->readAt(file.size - 1, {&last, 1}).ok() && last != std::byte{'.'};
}

struct Damage {
    std::string what;  // empty = none that is known
    bool sure = true;  // the ending alone does not say what a reader wants
};

Damage damageOfJson(const Directory& directory, const StepFile& file) {
    if (file.size > kMostJson) return {};
    const std::string text = smallFile(directory, file.path, kMostJson);
    if (text.empty() || nlohmann::json::accept(text)) return {};
    if (isZeros(text)) return {"holds only zero bytes"};
    const StepPart part = stepPartOf(lastName(file.path));
    const bool known = isState(part) || part == StepPart::config || lastName(file.path) == "metadata.json";
    return {"is not valid JSON: it was not written to its end", known};
}

Result<Damage> damageOf(const Directory& directory, const StepFile& file, const OpenAsFormat& open) {
    if (file.path.ends_with(".json")) return damageOfJson(directory, file);
    const std::string head = startOf(directory, file.path, kMostHead);
    if (head.empty()) return Damage{};
    if (isZeros(head)) return Damage{"begins with zero bytes only: its content never reached the disk"};
    const Status opened = open(file.path);
    if (opened.ok()) return Damage{};
    if (opened.error().code == ErrorCode::cancelled) return opened.error();
    if (opened.error().code != ErrorCode::unsupported)
        return Damage{fmt::format("cannot be read: {}", opened.error().message)};
    if (head.starts_with("PK\x03\x04")) return Damage{"is an archive without its end"};
    if (isCutPickle(directory, file, head)) return Damage{"is a pickle without its end"};
    return Damage{};
}

}  // namespace

Result<std::vector<Note>> contentNotes(const Directory& directory, const StepContents& step,
                                       const Contract& contract,
                                       const std::set<std::string, std::less<>>& known,
                                       const OpenAsFormat& open, const StopToken& stop) {
    std::vector<Note> notes;
    size_t looks = 0;
    for (const StepFile& file : step.files) {
        const std::string_view name = lastName(file.path);
        if (file.size == 0 || name.starts_with('.') || known.contains(file.path)) continue;
        const StepPart part = stepPartOfPath(file.path);
        if (!isStateFile(name)) continue;
        Need need = contract.damaged(file.path);
        if (need == Need::nothing || ++looks > kMostLooks) continue;
        SHARDSCOPE_TRY(stop.poll());
        SHARDSCOPE_ASSIGN(const Damage damage, damageOf(directory, file, open));
        if (damage.what.empty()) continue;
        if (!damage.sure || (!step.isStep && part == StepPart::unknown)) need = Need::result;
        Note note;
        note.rule = rule::fileDamaged;
        note.severity = severityOf(need);
        note.file = file.path;
        const std::string_view holds = partName(part);
        note.message = fmt::format("'{}'{} {}", printable(file.path, kNameInMessage),
                                   holds.empty() ? "" : fmt::format(" ({})", holds), damage.what);
        notes.push_back(std::move(note));
    }
    return notes;
}

namespace {

constexpr uint64_t kTail = 4096;      // bytes of an end that are looked at
constexpr uint64_t kShortest = 512;   // of a file
constexpr size_t kMostTails = 4096;   // files
constexpr size_t kMostCompared = 16;  // of one kind in an earlier step

bool holdsData(std::string_view path) {
    return isPickled(lastName(path)) || fitsGlobs("*.distcp|*/d/*|*/c/*", path);
}

bool endsInZeros(const Directory& directory, const StepFile& file) {
    const auto opened = directory.openFile(file.path);
    if (!opened.ok() || (*opened)->size() != file.size) return false;
    std::string tail(std::min(kTail, file.size / 4), '\0');
    if (!(*opened)->readAt(file.size - tail.size(), std::as_writable_bytes(std::span(tail))).ok())
        return false;
    return isZeros(tail);
}

// Whether an earlier step has files of this kind, and how none of them ends.
bool earlierEndOtherwise(const std::vector<StepOnDisk>& earlier, const std::string& family) {
    size_t compared = 0;
    for (const StepOnDisk& one : earlier) {
        size_t here = 0;
        for (const StepFile& file : one.contents.files) {
            if (file.size < kShortest || familyOf(file.path) != family) continue;
            if (endsInZeros(*one.directory, file)) return false;
            ++compared;
            if (++here == kMostCompared) break;
        }
    }
    return compared > 0;
}

}  // namespace

Result<std::vector<Note>> zeroTailNotes(const StepOnDisk& step, const Contract& contract,
                                        const std::vector<StepOnDisk>& earlier, const StopToken& stop) {
    std::vector<Note> notes;
    if (earlier.empty()) return notes;
    size_t looks = 0;
    for (const StepFile& file : step.contents.files) {
        const bool harmless = contract.damaged(file.path) == Need::nothing && isPickled(lastName(file.path));
        if (file.size < kShortest || !holdsData(file.path) || harmless || ++looks > kMostTails) continue;
        SHARDSCOPE_TRY(stop.poll());
        if (!endsInZeros(*step.directory, file) || !earlierEndOtherwise(earlier, familyOf(file.path)))
            continue;
        Note note;
        note.rule = rule::saveTorn;
        note.severity = Severity::warning;
        note.file = file.path;
        note.message = fmt::format(
            "'{}' ends in zero bytes, as files do that lost power before they were on "
            "the disk; in '{}' it does not",
            printable(file.path, kNameInMessage), printable(earlier.front().contents.name, kNameInMessage));
        notes.push_back(std::move(note));
    }
    return notes;
}

namespace {

constexpr uint64_t kEnd = 4096;  // bytes of the end that are looked at first
constexpr uint64_t kComparedBlock = 65'536;
constexpr uint64_t kWhole = uint64_t{16} << 20;     // a file of at most so many bytes is read whole
constexpr uint64_t kSample = 4096, kSamples = 256;  // of larger ones

std::string bytesAt(const ReadFile& file, uint64_t offset, uint64_t length) {
    std::string bytes(length, '\0');
    return file.readAt(offset, std::as_writable_bytes(std::span(bytes))).ok() ? bytes : std::string();
}

bool sameRange(const ReadFile& a, const ReadFile& b, uint64_t offset, uint64_t length) {
    const std::string bytes = bytesAt(a, offset, length);
    return bytes.size() == length && bytes == bytesAt(b, offset, length);
}

}  // namespace

std::string endOf(const ReadFile& file) {
    const uint64_t length = std::min(kEnd, file.size());
    return bytesAt(file, file.size() - length, length);
}

bool sameContent(const ReadFile& a, const ReadFile& b) {
    const uint64_t size = a.size(), end = std::min(kEnd, size);
    if (size != b.size() || !sameRange(a, b, size - end, end)) return false;
    if (size <= kWhole) {
        for (uint64_t at = 0; at < size - end; at += kComparedBlock)
            if (!sameRange(a, b, at, std::min(kComparedBlock, size - end - at))) return false;
        return true;
    }
    for (uint64_t i = 0; i < kSamples; ++i)
        if (!sameRange(a, b, (size - kSample) / kSamples * i, kSample)) return false;
    return true;
}

}  // namespace shardscope
