// What BucketUpload does for one process of a job in parts, and for the process that finishes it.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "base/thread_pool.h"
#include "encoding/crc32c.h"
#include "places/bucket_upload.h"
#include "places/places.h"

namespace shardscope {
namespace {

// The name of what a part records beside its journal.
constexpr std::string_view kJournal = ".journal";
std::string sentBy(std::string_view journal) {
    return std::string(journal.substr(0, journal.size() - kJournal.size())) + ".sent";
}

// Of a name such as "0-4096", of bytes of a file of this size.
std::optional<std::pair<uint64_t, uint64_t>> rangeOf(std::string_view name, uint64_t size) {
    const size_t dash = std::min(name.find('-'), name.size());
    const auto begin = parseNumber<uint64_t>(name.substr(0, dash), 0, size),
               end = parseNumber<uint64_t>(name.substr(std::min(dash + 1, name.size())), 0, size);
    if (!begin || !end || *begin >= *end) return std::nullopt;
    return std::pair(*begin, *end);
}

}  // namespace

// The upload that all parts send this file to: that of the first one that has said so.
Result<std::string> BucketUpload::sharedUpload(const File& file) {
    const std::string key = staging_ + "uploads/" + file.name;
    auto known = textOfObject(*place_, key);
    if (known.ok() || known.error().code != ErrorCode::notFound) return known;
    SHARDSCOPE_ASSIGN(std::string own, place_->startUpload(file.key, {false, mark_, 0}));
    const auto bytes = std::as_bytes(std::span(own));
    const Status first = place_->put(key, bytes, {true, mark_, crc32cOf(bytes)});
    if (first.ok()) return own;
    (void)place_->abandon(file.key, own);
    if (first.error().code != ErrorCode::exists) return first.error();
    return textOfObject(*place_, key);
}

// What is written here of a file and not sent, in pieces that do not cross parts of its upload.
std::vector<BucketUpload::Piece> BucketUpload::piecesOf(File& file) const {
    std::vector<Piece> pieces;
    MutexLock lock(file.mutex);
    for (const auto& [begin, end] : file.written) {
        for (uint64_t at = begin; at < end;) {
            const uint64_t i = at / file.partBytes, next = std::min(end, (i + 1) * file.partBytes);
            if (i >= file.parts.size() || file.parts[i].part.number == 0) pieces.push_back({&file, at, next});
            at = next;
        }
    }
    return pieces;
}

Status BucketUpload::sendPiece(const Piece& piece) {
    const StopScope scope(job_.stop);
    SHARDSCOPE_ASSIGN(Bytes sent, bytesOf(*piece.file, piece.begin, piece.end - piece.begin));
    return place_->put(fmt::format("{}data/{}/{}-{}", staging_, piece.file->name, piece.begin, piece.end),
                       sent.all.span(), {false, mark_, crc32cOf(sent.all.span())});
}

Status BucketUpload::sendPieces(const std::string& journal) {
    std::vector<File*> files, streamed;
    {
        MutexLock lock(filesMutex_);
        for (const auto& [name, file] : files_) {
            files.push_back(file.get());
            if (streams(name)) streamed.push_back(file.get());
        }
    }
    SHARDSCOPE_TRY(sendRest(streamed, true));
    std::vector<Piece> pieces;
    for (File* file : files)
        std::ranges::copy(piecesOf(*file), std::back_inserter(pieces));
    ThreadPool pool(kSending - 1);
    SHARDSCOPE_TRY(
        pool.parallelFor(pieces.size(), job_.stop, [&](size_t i) { return sendPiece(pieces[i]); }));
    nlohmann::json sent = nlohmann::json::object();
    for (File* file : files) {
        MutexLock lock(file->mutex);
        ByteRanges ranges = file->written;
        for (size_t i = 0; i < file->parts.size(); ++i)
            if (file->parts[i].part.number) addRange(ranges, i * file->partBytes, file->endOf(i));
        sent[file->name] = jsonOf(ranges);
    }
    const std::string text = sent.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    const auto bytes = std::as_bytes(std::span(text));
    return place_->put(staging_ + sentBy(journal), bytes, {false, mark_, crc32cOf(bytes)});
}

Status BucketUpload::gather() {
    const StopScope scope(job_.stop);
    SHARDSCOPE_TRY(begin());
    SHARDSCOPE_ASSIGN(const std::vector<ObjectState> objects, listAll(*place_, staging_));
    const std::string uploads = staging_ + "uploads/", data = staging_ + "data/";
    std::map<std::string, std::vector<ObjectState>> found;  // by file
    for (const ObjectState& object : objects) {
        if (object.key.starts_with(uploads)) found[object.key.substr(uploads.size())];
        if (!object.key.starts_with(data)) continue;
        const std::string name = splitPath(object.key.substr(data.size())).first;
        found[name].push_back(object);
    }
    std::vector<std::pair<File*, const std::vector<ObjectState>*>> files;
    SHARDSCOPE_ASSIGN(const auto directory, systemFileSystem()->openDirectory(data_));
    for (const auto& [name, pieces] : found) {
        SHARDSCOPE_ASSIGN(File* const file, gathered(*directory, name));
        files.emplace_back(file, &pieces);
    }
    ThreadPool pool(kSending - 1);
    SHARDSCOPE_TRY(pool.parallelFor(files.size(), job_.stop, [&](size_t i) -> Status {
        const StopScope inner(job_.stop);
        SHARDSCOPE_TRY(gatherParts(*files[i].first));
        return gatherPieces(*files[i].first, *files[i].second);
    }));
    Status sent = checkSent(*directory, objects);
    if (!sent.ok() && sent.error().code == ErrorCode::damaged) {
        MutexLock lock(begun_);
        (void)place_->remove(claim_);  // a part can run again
        claimed_ = false;
    }
    return sent;
}

// A file of the destination, by a name that anybody may have given.
Result<BucketUpload::File*> BucketUpload::gathered(const Directory& directory, const std::string& name) {
    SHARDSCOPE_TRY(checkRelativeName(name));
    SHARDSCOPE_ASSIGN(const DirectoryEntry entry, directory.stat(name));
    return &fileOf(name, entry.size);
}

// What the parts have sent must all be there: without a verification nobody else would see that bytes are
// missing.
Status BucketUpload::checkSent(const Directory& directory, const std::vector<ObjectState>& objects) {
    for (const ObjectState& object : objects) {
        const std::string journal = object.key.substr(staging_.size());
        if (!journal.starts_with("part-") || !journal.ends_with(kJournal)) continue;
        const auto lost = [&](const std::string& key) {
            return makeError(ErrorCode::damaged, "the bucket no longer has all that a part of the job sent")
                .inFile(place_->root() + "/" + key)
                .withHint(fmt::format("remove the object {}/{} and run that part again", place_->root(),
                                      object.key));
        };
        const std::string record = staging_ + sentBy(journal);
        const auto text = textOfObject(*place_, record);
        if (!text.ok() && text.error().code != ErrorCode::notFound) return text.error();
        const auto sent = nlohmann::json::parse(text.ok() ? *text : "", nullptr, false);
        if (!sent.is_object()) return lost(record);
        for (const auto& [name, ranges] : sent.items()) {
            SHARDSCOPE_ASSIGN(File* const file, gathered(directory, name));
            ByteRanges wanted;
            if (!addRanges(wanted, ranges, file->size)) return lost(record);
            MutexLock lock(file->mutex);
            const bool all =
                std::ranges::all_of(wanted, [&](const auto& range) SHARDSCOPE_REQUIRES(file->mutex) {
                    return covers(file->written, range.first, range.second);
                });
            if (all || file->complete) continue;
            // A process that was to finish may have got beyond that.
            SHARDSCOPE_ASSIGN(file->complete, isThere(*file));
            if (!file->complete) return lost(file->key);
        }
    }
    return {};
}

// The parts of its upload that the store has.
Status BucketUpload::gatherParts(File& file) {
    MutexLock lock(file.mutex);
    const auto upload = textOfObject(*place_, staging_ + "uploads/" + file.name);
    if (!upload.ok()) return upload.error().code == ErrorCode::notFound ? Status() : upload.error();
    if (!streams(file.name))
        return makeError(ErrorCode::unsupported, "the store no longer refuses parts with a wrong checksum")
            .inFile(place_->root() + "/" + file.key)
            .withHint("finish the job once it does");
    const auto parts = place_->parts(file.key, *upload);
    if (!parts.ok() && parts.error().code != ErrorCode::notFound) return parts.error();
    if (!parts.ok()) {
        // An earlier process that was to finish has got as far as this.
        SHARDSCOPE_ASSIGN(file.complete, isThere(file));
        return file.complete ? Status() : Status(parts.error());
    }
    file.upload = *upload;
    for (const ObjectPlace::Part& part : *parts) {
        if (part.number > file.parts.size() || part.size != file.partSize(part.number - 1)) continue;
        file.parts[part.number - 1] = {part, 0, true, true};
        addRange(file.written, (part.number - 1) * file.partBytes, file.endOf(part.number - 1));
    }
    return {};
}

Status BucketUpload::gatherPieces(File& file, const std::vector<ObjectState>& objects) {
    std::shared_ptr<WriteFile> here;
    for (const ObjectState& object : objects) {
        const auto range = rangeOf(splitPath(object.key).second, file.size);
        if (!range || object.size != range->second - range->first)
            return makeError(ErrorCode::damaged, "the object holds other bytes than its name says")
                .inFile(place_->root() + "/" + object.key);
        MutexLock lock(file.mutex);
        const auto part = static_cast<size_t>(range->first / file.partBytes);
        if (file.complete || (part < file.parts.size() && file.parts[part].part.number != 0)) continue;
        const MemoryBudget::Lease lease = memory_.acquire(object.size);
        AlignedBuffer bytes(object.size);
        SHARDSCOPE_TRY(place_->read(object, 0, bytes.span()));
        if (!here) {
            SHARDSCOPE_ASSIGN(const auto directory, systemFileSystem()->openDirectory(data_));
            SHARDSCOPE_ASSIGN(here, directory->createFile(file.name, true));
        }
        SHARDSCOPE_TRY(here->writeAt(range->first, bytes.span()));
        if (file.parts.empty())
            addRange(file.written, range->first, range->second);
        else
            (void)note(file, range->first, range->second);
    }
    return {};
}

// As far as the store lets it.
void BucketUpload::removeShared() {
    const auto objects = listAll(*place_, staging_);
    for (const ObjectState& object : objects.ok() ? *objects : std::vector<ObjectState>()) {
        if (object.key != claim_) (void)place_->remove(object.key);
    }
}

}  // namespace shardscope
