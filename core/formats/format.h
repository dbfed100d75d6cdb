// What a checkpoint format is to the rest of the engine: it recognizes itself, describes what is there (a
// Catalog, and where each chunk's raw elements are), and lays out what should be somewhere else. It moves no
// tensor data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop.h"
#include "model/catalog.h"
#include "storage/file_system.h"

namespace shardscope {

// Limits on what is believed from untrusted input. A limit that is reached is reported as such, never as
// damage.
struct Limits {
    uint64_t safetensorsHeader = 100'000'000;  // as the reference implementation
    uint64_t indexJson = uint64_t{256} << 20;
    uint64_t pickleBytes = uint64_t{2} << 30;
    uint64_t pickleText = uint64_t{16} << 20;    // one string
    uint64_t valueMemory = uint64_t{256} << 20;  // what a pickle's values may take
    uint64_t objectBytes = uint64_t{64} << 20;   // one non-tensor object, tensors inside it included
    uint64_t zipEntries = 4'000'000;
};

// A checkpoint's place: a directory, or one file of it.
struct Source {
    std::shared_ptr<FileSystem> fileSystem;
    std::shared_ptr<Directory> directory;
    std::string entry;                    // file name inside the directory; empty = the directory itself
    std::string display;                  // as the user gave it
    std::vector<DirectoryEntry> entries;  // listing of the directory, sorted by name
    bool hasFile(std::string_view name) const;
};

struct OpenOptions {
    Limits limits;
    std::string variant;  // format-specific choice, e.g. "id=3"
    // Values of Format::options(), by name, in the order in which they were given.
    std::vector<std::pair<std::string, std::string>> own;
    std::vector<std::string> valuesOf(std::string_view option) const;
    std::string scratchDirectory;  // for entries that must be unpacked before they can be read by position
    StopToken stop;
};

struct Probe {
    enum class Match : uint8_t { no, possible, certain };
    Match match = Match::no;
    std::string reason;  // why, for messages: "has .metadata and __0_0.distcp"
};

// A checksum that the checkpoint itself stores.
struct StoredChecksum {
    uint64_t offset = 0;  // in the chunk's file
    uint64_t length = 0;
    uint32_t crc32 = 0;
    // Where its entry is stored: of entries that are unpacked when they are read, several have one path and
    // the same offsets. 0 where offsets alone tell records apart.
    uint64_t entry = 0;

    // Names its file, or the entry of it: with the offset, what no other record has.
    std::string storageIn(const std::string& path) const {
        return entry == 0 ? path : path + '\n' + std::to_string(entry);
    }
};

// Where the elements of one chunk are, ready to be read by position.
struct Extent {
    std::shared_ptr<const ReadFile> file;
    uint64_t offset = 0;  // of the chunk's element [0, ..., 0] (for a flat range: of its first element)
    uint64_t length = 0;  // bytes from there to the end of the last element
    Dims strides;  // in elements, one per dimension of the box; empty = row-major. Never negative, may be 0
    bool swapBytes = false;  // stored big-endian
    bool conjugate = false;  // the true value is the complex conjugate / the negative of what is stored
    bool negate = false;
    // What the elements are stored as, where that is not the tensor's dtype: the reader of the elements casts
    // them, to nearest, ties to even (a weight that is kept as its fp32 master only). Then `length` and
    // `strides` count such elements.
    std::optional<DType> storedAs;
    std::optional<StoredChecksum> checksum;
};

// One open checkpoint. Immutable after open; all methods are thread-safe.
class Reader {
  public:
    virtual ~Reader() = default;

    virtual const Catalog& catalog() const = 0;

    // Reads what little surrounds the chunk's data and checks it against the catalog: dtype, shape, size.
    // Errors: damaged (rule meta.inconsistent), notFound (file.missing), file.truncated, unsupported.
    virtual Result<Extent> locate(ChunkId chunk) const = 0;

    // The value of a non-tensor entry; a small read where it is not part of the metadata.
    virtual Result<Value> objectValue(ObjectId object) const = 0;

    // What only the data files show, such as entries that the metadata does not know; for `validate`. Reads
    // what surrounds the data of every file that can be read.
    virtual Result<std::vector<Note>> fileNotes() const { return std::vector<Note>{}; }

    // Which files locate() would open; for change detection. Default: those of the catalog.
    virtual Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const = 0;

    // Empty, or what this is when the data is not here ("an index of gpu07:/ckpt/step-1000, made ..."): then
    // locate() and openFile() always fail, with a sentence that says so.
    virtual std::string dataElsewhere() const { return {}; }
};

// ------------------------------------------------------------------ writing

struct WriteOptions {
    std::string variant;
    uint64_t maxFileSize = 0;  // 0 = the format's default
    std::string archiveName;   // stem of the destination's name, for formats that record it
    bool strict = false;
    StopToken stop{};  // polled while a layout of many files is made
};

struct LeftOut {
    std::string name;
    std::string why;
};

// A tensor of the destination that is made of another one, such as the fp32 master of a weight.
struct TargetCopy {
    Path path;            // empty: no new one, but what else would be an alias is a tensor of its own
    TensorId of = kNone;  // in the target without copies
    DType dtype = DType::float32;
    Role role = Role::optimizer;
    std::string why;
};

struct TargetFile {
    std::string path;   // relative to the destination
    uint64_t size = 0;  // exact
    bool metadata = false;
};

// Receives the bytes that are not tensor data: headers, padding, pickles, directories.
using LiteralSink = std::function<Status(FileId file, uint64_t offset, std::span<const std::byte> bytes)>;

// Where every byte of a destination goes. The executor writes chunk data at chunkOffset, calls
// chunkLiterals() once for each chunk when its data is complete, and fileLiterals() once for each file after
// all its chunks. Every byte of every file is covered by exactly one of these, except padding, which reads as
// zero.
class TargetLayout {
  public:
    virtual ~TargetLayout() = default;

    std::vector<TargetFile> files;
    std::vector<FileId> chunkFile;      // one per chunk of the wanted catalog
    std::vector<uint64_t> chunkOffset;  // of the raw elements
    std::vector<LeftOut> changed;  // what is carried, but not as it was (a tied name recorded as alias, ...)
    bool needsCrc = false;         // whether `crc32` arguments below must be right

    virtual Status chunkLiterals(ChunkId chunk, uint32_t crc32, const LiteralSink& sink) const = 0;
    // `chunkCrcs` is indexed by ChunkId, over all chunks.
    virtual Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                                const LiteralSink& sink) const = 0;
};

// ------------------------------------------------------------------ a format

// What one format takes when it opens a checkpoint, besides what all do. Command lines and the window offer
// it.
struct FormatOption {
    std::string name;   // "--tp-dim"
    std::string value;  // what it takes: "GLOB=DIM"
    std::string help;
    std::string title;    // of its field in the window: "Cut dimensions"
    std::string example;  // of a value
    std::string unset;    // what holds without it; for one with choices
    struct Choice {
        std::string value, meaning;
    };
    std::vector<Choice> choices;  // all values that there are; empty = any text
    bool repeats = false;

    std::vector<std::string> values() const;  // of the choices
};

struct FormatInfo {
    std::string name;                   // "dcp", as in --to and --format
    std::string title;                  // "PyTorch distributed checkpoint (DCP)"
    std::vector<std::string> synonyms;  // other names that people type for it
    std::vector<std::string> suffixes;  // of the names of its files, without the dot; the usual one first
    // Another format whose files these are, with names in a form of their own (--keys).
    std::string refines;
    // Formats that a directory of this one may fit as well, by name, and why it is of this one.
    struct Precedence {
        std::string over, why;
    };
    std::vector<Precedence> before;
    std::vector<FormatOption> options;
    bool reads = false;
    bool writes = false;
    std::vector<std::string> generations;    // what is read, for `shardscope formats`
    std::vector<std::string> variants;       // what --variant accepts when writing
    std::vector<std::string> wholeVariants;  // those of them that hold whole tensors only
    // What it can hold.
    bool shards = false;          // a tensor in several pieces on several ranks
    bool replicas = false;        // each rank's files hold all that the rank has
    bool wholeByDefault = false;  // its readers expect whole tensors unless asked otherwise
    bool objects = false;         // non-tensor entries
    bool aliases = false;         // two names of one storage
    bool nesting = false;         // paths, not only names
    // Where in a checkpoint's directory a model's configuration and tokenizer belong: ".", "huggingface";
    // empty = nowhere.
    std::string assets;
    bool singleFile = false;  // the destination is one file rather than a directory
    std::string fileVariant;  // the variant that makes one file, for a destination with the usual suffix
};

// What a format is, and its functions; those that it leaves out have an answer of their own.
class Format {
  public:
    using Opened = Result<std::unique_ptr<Reader>>;
    using Laid = Result<std::unique_ptr<TargetLayout>>;
    using NewPath = std::function<std::optional<Path>(const Path& path, bool optimizer)>;
    using ReadValue = std::function<Result<Value>(ObjectId)>;
    using Placing = Result<Catalog> (*)(const Catalog& target, const std::optional<Mesh>& asked,
                                        const Catalog& source);

    FormatInfo about;
    // Looks at names and first bytes only.
    Probe (*probe)(const Source& source) = nullptr;
    Opened (*open)(const Source& source, const OpenOptions& options) = nullptr;
    // Where this format nests an entry in another way than the source: the path that its readers give it;
    // else nothing. `optimizer`: part of an optimizer's state dict.
    std::optional<Path> (*pathFor)(const Path& path, bool optimizer) = [](const Path&, bool) {
        return std::optional<Path>();
    };
    // As pathFor, where that depends on other entries of the source; nothing where pathFor says it all.
    // `read` gives the value of an object; it is not kept.
    NewPath (*pathsFor)(const Catalog& source, const ReadValue& read, const WriteOptions& options) =
        [](const Catalog&, const ReadValue&, const WriteOptions&) { return NewPath(); };
    // `target` with other chunks: those that the framework's ranks would have saved, where it has a rule of
    // its own for them; else null. Taken where the user gives no rules. `asked`: the mesh that the user
    // wants, else that of `source` where it means the same ranks. Errors: usage for axes that the framework
    // does not have.
    Placing placing = nullptr;
    // Tensors that this format wants besides those of `target`: copies of them, each value exactly.
    std::vector<TargetCopy> (*copies)(const Catalog& target, const WriteOptions& options) =
        [](const Catalog&, const WriteOptions&) { return std::vector<TargetCopy>(); };
    // Which tensors (by name) and objects of `target` this format cannot hold, and why.
    std::vector<LeftOut> (*cannotHold)(const Catalog& target, const WriteOptions& options) =
        [](const Catalog&, const WriteOptions&) { return std::vector<LeftOut>(); };
    // Pure: opens nothing. `target` outlives the layout; objects carry their values; its chunks cover each
    // tensor exactly.
    Laid (*layout)(const Catalog& target, const WriteOptions& options) = notWritten;

    const FormatInfo& info() const { return about; }
    const std::vector<FormatOption>& options() const { return about.options; }
    bool takes(std::string_view option) const;

    static Laid notWritten(const Catalog& target, const WriteOptions& options);
};

}  // namespace shardscope
