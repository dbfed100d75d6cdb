#include "encoding/strict_json.h"

#include <bit>
#include <functional>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"

namespace shardscope::safetensors {

namespace {

// Walks over characters and lets the reader see how far it is.
struct Cursor {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    const char* p = nullptr;
    const char** at = nullptr;
    reference operator*() const { return *p; }
    Cursor& operator++() {
        ++p;
        *at = p;
        return *this;
    }
    Cursor operator++(int) {
        Cursor old = *this;
        ++*this;
        return old;
    }
    bool operator==(const Cursor& other) const { return p == other.p; }
    bool operator!=(const Cursor& other) const { return p != other.p; }
};

}  // namespace

bool JsonEvents::open(bool object) {
    if (depth_ >= kMaxJsonDepth) {
        return fail(makeError(ErrorCode::limit, fmt::format("{} is nested more than {} deep", what_,
                                                            counted(kMaxJsonDepth, "level")))
                        .at(position()));
    }
    if (skipFrom_ < 0 && !onOpen(object)) return false;
    ++depth_;
    return true;
}

bool JsonEvents::close(bool object) {
    --depth_;
    if (skipFrom_ < 0) return onClose(object);
    if (skipFrom_ == depth_) skipFrom_ = -1;
    return true;
}

bool JsonEvents::parse_error(size_t, const std::string& lastToken, const nlohmann::detail::exception&) {
    const uint64_t where = position();
    if (at_ == begin_) return fail(damaged(fmt::format("{} is empty", what_), where));
    return fail(damaged(
        fmt::format("{} is not valid JSON: unexpected '{}'", what_, printable(lastToken, kNameInMessage)),
        where));
}

Status JsonEvents::parse(std::string_view text, uint64_t base, std::string_view what) {
    begin_ = at_ = text.data();
    base_ = base;
    what_ = what;
    // nlohmann::json skips a byte order mark, which the format does not allow.
    if (text.starts_with("\xEF\xBB\xBF"))
        return damaged(fmt::format("{} starts with a byte order mark", what_), base);
    // It also takes a NUL for the end of the text.
    if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
        return damaged(fmt::format("{} holds a NUL byte", what_), base + nul);
    const bool ok =
        nlohmann::json::sax_parse(Cursor{text.data(), &at_}, Cursor{text.data() + text.size(), &at_}, this);
    if (failed_) return error_;
    if (!ok) return damaged(fmt::format("{} is not valid JSON", what_), position());
    return {};
}

size_t NameSet::slotOf(std::string_view name) const {
    size_t slot = std::hash<std::string_view>{}(name) & (table_.size() - 1);
    while (table_[slot] != UINT32_MAX && (*this)[table_[slot]] != name)
        slot = (slot + 1) & (table_.size() - 1);
    return slot;
}

void NameSet::grow() {
    table_.assign(std::bit_ceil(ends_.size() * 4 + 16), UINT32_MAX);
    for (size_t i = 0; i < ends_.size(); ++i)
        table_[slotOf((*this)[i])] = static_cast<uint32_t>(i);
}

bool NameSet::insert(std::string_view name) {
    if (table_.size() < ends_.size() * 2 + 2) grow();
    const size_t slot = slotOf(name);
    if (table_[slot] != UINT32_MAX) return false;
    table_[slot] = static_cast<uint32_t>(ends_.size());
    blob_ += name;
    ends_.push_back(blob_.size());
    return true;
}

size_t NameSet::find(std::string_view name) const {
    if (table_.empty()) return SIZE_MAX;
    const uint32_t index = table_[slotOf(name)];
    return index == UINT32_MAX ? SIZE_MAX : index;
}

}  // namespace shardscope::safetensors
