// shardscope.save(): a state dict in memory, seen as the file that torch.save would make of it, and converted
// from there. Only what is around the tensors is made (app/python/shardscope/_state.py); their elements are
// read where they are.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "base/checked.h"
#include "call.h"
#include "storage/read_only.h"

namespace shardscope::python {
namespace {

constexpr const char* kPlace = "<memory>";
constexpr const char* kName = "state.pt";

std::string pathOfState() {
    return joinPath(kPlace, kName);
}

class StateFile final : public ReadFile {
  public:
    // Memory that outlives the file.
    explicit StateFile(std::vector<std::span<const std::byte>> pieces) : pieces_(std::move(pieces)) {
        for (const auto& piece : pieces_) {
            begins_.push_back(size_);
            size_ += piece.size();
        }
    }

    const std::string& path() const override { return path_; }
    uint64_t size() const override { return size_; }
    Status readAt(uint64_t offset, std::span<std::byte> buffer) const override {
        if (!rangeFits(offset, buffer.size(), size_))
            return makeError(ErrorCode::io, "a read past the end of the state").inFile(path_).at(offset);
        auto i = static_cast<size_t>(std::ranges::upper_bound(begins_, offset) - begins_.begin());
        for (i = i == 0 ? 0 : i - 1; !buffer.empty(); ++i) {
            const auto from = pieces_[i].subspan(offset - begins_[i]);
            const size_t count = std::min(from.size(), buffer.size());
            if (count > 0) std::memcpy(buffer.data(), from.data(), count);
            buffer = buffer.subspan(count);
            offset += count;
        }
        return {};
    }
    Result<Fingerprint> fingerprint() const override { return Fingerprint(); }

  private:
    const std::string path_ = pathOfState();
    const std::vector<std::span<const std::byte>> pieces_;
    std::vector<uint64_t> begins_;
    uint64_t size_ = 0;
};

Error notWritten(const std::string& path) {
    return makeError(ErrorCode::internal, "a state in memory is read only").inFile(path);
}

class StateDirectory final : public ReadOnlyDirectory {
  public:
    explicit StateDirectory(std::shared_ptr<const StateFile> file) : file_(std::move(file)) {}

    const std::string& path() const override { return path_; }
    Result<std::vector<DirectoryEntry>> list(std::string_view subdirectory) const override {
        if (!subdirectory.empty()) return absent(subdirectory);
        return std::vector<DirectoryEntry>{entry()};
    }
    Result<std::shared_ptr<const ReadFile>> openFile(std::string_view name) const override {
        if (name != kName) return absent(name);
        return std::shared_ptr<const ReadFile>(file_);
    }
    Result<DirectoryEntry> stat(std::string_view name) const override {
        if (name != kName) return absent(name);
        return entry();
    }

  private:
    DirectoryEntry entry() const { return {.name = kName, .size = file_->size()}; }
    Error absent(std::string_view name) const {
        return makeError(ErrorCode::notFound, "is not there").inFile(joinPath(path_, name));
    }
    Error refused(const std::string& path) const override { return notWritten(path); }

    const std::string path_ = kPlace;
    const std::shared_ptr<const StateFile> file_;
};

class StateFileSystem final : public ReadOnlyFileSystem {
  public:
    explicit StateFileSystem(std::shared_ptr<const StateFile> file)
        : ReadOnlyFileSystem(systemFileSystem()),
          directory_(std::make_shared<StateDirectory>(std::move(file))) {}

    Result<std::shared_ptr<Directory>> openDirectory(const std::string& path) override {
        if (path != kPlace) return makeError(ErrorCode::notFound, "is not there").inFile(path);
        return std::shared_ptr<Directory>(directory_);
    }
    Result<DirectoryEntry> stat(const std::string& path) override {
        if (path == kPlace) return DirectoryEntry{.name = kPlace, .kind = DirectoryEntry::Kind::directory};
        if (path != pathOfState()) return makeError(ErrorCode::notFound, "is not there").inFile(path);
        return directory_->stat(kName);
    }

  private:
    Error refused(const std::string& path) const override { return notWritten(path); }

    const std::shared_ptr<StateDirectory> directory_;
};

// Each is bytes, or address and length of a tensor's storage.
std::vector<std::span<const std::byte>> piecesOf(const nb::list& pieces) {
    std::vector<std::span<const std::byte>> memory;
    for (const nb::handle piece : pieces) {
        if (nb::isinstance<nb::bytes>(piece)) {
            const auto bytes = nb::borrow<nb::bytes>(piece);
            memory.push_back(std::as_bytes(std::span(bytes.c_str(), bytes.size())));
        } else {
            const auto [address, size] = nb::cast<std::pair<uintptr_t, uint64_t>>(piece);
            memory.emplace_back(reinterpret_cast<const std::byte*>(address), size);
        }
    }
    return memory;
}

// `pieces` outlive the call: its caller holds them.
nb::object save(nb::list pieces, nb::str destination, nb::list options, nb::str program,
                nb::object progress) {
    const auto how = asked("convert", options, fromText(program));
    ConversionRequest& request = how->request;
    request.source = pathOfState();
    request.destination = fromText(destination);
    if (!request.on.empty() || how->parts.given() || request.resume)
        raise(makeError(ErrorCode::usage, "a state in memory is written by this process alone, and at once")
                  .withHint("save it with torch.save, then convert that file"));
    auto files = std::make_shared<StateFileSystem>(std::make_shared<StateFile>(piecesOf(pieces)));
    Call call(*how);
    return toText(valueOf(call.run(
        [&](Call&) -> Result<std::string> {
            SHARDSCOPE_ASSIGN(const auto conversion,
                              Conversion::prepare(request, Execution(Alone{}), how->access.stop, files));
            if (how->dryRun) return dump(planJson(how->access, *conversion));
            SHARDSCOPE_ASSIGN(const Json report, runToReport(how->access, *conversion, request.verify));
            return dump(report);
        },
        progress)));
}

}  // namespace

void addSave(nb::module_& m) {
    m.def("save", &save, nb::arg("pieces"), nb::arg("destination"), nb::arg("options"), nb::arg("program"),
          nb::arg("progress").none());
}

}  // namespace shardscope::python
