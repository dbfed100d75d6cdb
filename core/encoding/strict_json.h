// Headers of safetensors files and indexes of their shards: JSON that is read as a stream of events, without
// a document in memory. It is stricter than RFC 8259: no duplicate member, no fraction where a count belongs,
// bounded nesting.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace shardscope::safetensors {

constexpr int kMaxJsonDepth = 128;

// Receives the events that matter here; the rest of a document is skipped by `skipping()`. A handler returns
// false to end the reading after it called fail().
class JsonEvents {
  public:
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    virtual ~JsonEvents() = default;

    // --- what a document's reader implements; `depth` counts open objects and lists, the event's own
    // excluded
    virtual bool onKey(std::string& key) = 0;
    virtual bool onText(std::string& text) = 0;
    virtual bool onCount(uint64_t value) = 0;         // a non-negative whole number
    virtual bool onOther(std::string_view what) = 0;  // null, true, a fraction, a negative number
    virtual bool onOpen(bool object) = 0;
    virtual bool onClose(bool object) = 0;

    // --- events of nlohmann::json::sax_parse
    bool null() {
        return scalar([&] { return onOther("null"); });
    }
    bool boolean(bool value) {
        return scalar([&] { return onOther(value ? "true" : "false"); });
    }
    bool number_integer(number_integer_t) {
        return scalar([&] { return onOther("a negative number"); });
    }
    bool number_unsigned(number_unsigned_t value) {
        return scalar([&] { return onCount(value); });
    }
    bool number_float(number_float_t, const string_t& text) {
        return scalar([&] { return onOther("the number " + text.substr(0, 40)); });
    }
    bool string(string_t& value) {
        return scalar([&] { return onText(value); });
    }
    bool binary(binary_t&) { return false; }
    bool start_object(size_t) { return open(true); }
    bool start_array(size_t) { return open(false); }
    bool end_object() { return close(true); }
    bool end_array() { return close(false); }
    bool key(string_t& value) { return skipFrom_ >= 0 || onKey(value); }
    bool parse_error(size_t position, const std::string& lastToken, const nlohmann::detail::exception& why);

    // Reads the whole of `text`; `base` is the file offset of its first byte, `what` completes "... is not
    // valid JSON". Errors: damaged with the offset in the file, and what a handler gave to fail().
    Status parse(std::string_view text, uint64_t base, std::string_view what);

  protected:
    bool fail(Error error) {
        if (!failed_) error_ = std::move(error);
        failed_ = true;
        return false;
    }
    // The value that follows, whatever it is, is not looked at.
    void skipValue() { skipFrom_ = depth_; }
    int depth() const { return depth_; }
    uint64_t position() const { return base_ + static_cast<uint64_t>(at_ - begin_); }

  private:
    template <class Handle>
    bool scalar(Handle&& handle) {
        if (skipFrom_ < 0) return handle();
        if (skipFrom_ == depth_) skipFrom_ = -1;
        return true;
    }
    bool open(bool object);
    bool close(bool object);

    int depth_ = 0;
    int skipFrom_ = -1;
    bool failed_ = false;
    Error error_;
    const char* begin_ = nullptr;
    const char* at_ = nullptr;
    uint64_t base_ = 0;
    std::string what_;
};

// Names of one object, to find a duplicate as soon as it is read.
class NameSet {
  public:
    // False when `name` was there. Names are kept in one blob; `index` counts the distinct names so far.
    bool insert(std::string_view name);
    size_t size() const { return ends_.size(); }
    std::string_view operator[](size_t index) const {
        const uint64_t begin = index ? ends_[index - 1] : 0;
        return std::string_view(blob_).substr(begin, ends_[index] - begin);
    }
    // SIZE_MAX when absent.
    size_t find(std::string_view name) const;

  private:
    size_t slotOf(std::string_view name) const;
    void grow();
    std::string blob_;
    std::vector<uint64_t> ends_;
    std::vector<uint32_t> table_;
};

}  // namespace shardscope::safetensors
