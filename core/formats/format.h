// The interface of a checkpoint format. A format recognizes its files, opens them as a Reader (a Catalog, and
// the extent of each chunk), and lays out destinations. It moves no tensor data.
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

// Limits for untrusted input, in bytes unless said otherwise. Exceeding one is the error `limit`, never
// `damaged`.
struct Limits {
    uint64_t safetensorsHeader = 100'000'000;  // as the reference implementation
    uint64_t indexJson = uint64_t{256} << 20;
    uint64_t pickleBytes = uint64_t{2} << 30;
    uint64_t pickleText = uint64_t{16} << 20;    // one string
    uint64_t valueMemory = uint64_t{256} << 20;  // memory of a pickle's values
    uint64_t objectBytes = uint64_t{64} << 20;   // one non-tensor object, tensors inside it included
};

// Where a checkpoint is: a directory, or one file in it.
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
    std::string variant;  // of the format, e.g. "id=3"
    // Values of Format::options(): (name, value) in the order given.
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
    // Where the entry is stored. Entries that are unpacked before reading may share one path and offset; this
    // tells them apart. 0 where the offset alone does.
    uint64_t entry = 0;

    // Names the file, or the entry in it. Together with the offset this is unique to a record.
    std::string storageIn(const std::string& path) const {
        return entry == 0 ? path : path + '\n' + std::to_string(entry);
    }
};

// Where the elements of one chunk are, ready to be read by position.
struct Extent {
    std::shared_ptr<const ReadFile> file;
    uint64_t offset = 0;  // in bytes, of the chunk's element [0, ..., 0] (flat range: of its first element)
    uint64_t length = 0;  // bytes from there to the end of the last element
    Dims strides;         // in elements, one per dimension of the box; 0 or more; empty = row-major
    bool swapBytes = false;  // stored big-endian
    bool conjugate = false;  // the value is the complex conjugate of the stored one
    // The value is the negative of the stored one.
    bool negate = false;
    // The stored dtype, where it differs from the tensor's: a weight that is kept only as its fp32 master.
    // The reader of the elements casts them: round to nearest, ties to even. `length` and `strides` count
    // elements of the stored dtype.
    std::optional<DType> storedAs;
    std::optional<StoredChecksum> checksum;
};

// One open checkpoint. Immutable after open; all methods are thread-safe.
class Reader {
  public:
    virtual ~Reader() = default;

    virtual const Catalog& catalog() const = 0;

    // Finds the chunk's bytes. Reads the headers around them and checks dtype, shape and size against the
    // catalog. Errors: damaged (rule meta.inconsistent), notFound (file.missing), file.truncated,
    // unsupported.
    virtual Result<Extent> locate(ChunkId chunk) const = 0;

    // The value of an object. Reads the file where the metadata does not hold the value.
    virtual Result<Value> objectValue(ObjectId object) const = 0;

    // Notes that need the data files, such as entries that the metadata does not name; for `validate`. Reads
    // the headers of every readable file.
    virtual Result<std::vector<Note>> fileNotes() const { return std::vector<Note>{}; }

    // Opens a file of the catalog; for change detection.
    virtual Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const = 0;

    // Empty where the data is at hand. Else says what was opened ("an index of gpu07:/ckpt/step-1000, made
    // ..."); then locate() and openFile() always fail with a message that says so.
    virtual std::string dataElsewhere() const { return {}; }
};

// ------------------------------------------------------------------ writing

struct WriteOptions {
    std::string variant;
    uint64_t maxFileSize = 0;  // bytes; 0 = the format's default
    std::string archiveName;   // stem of the destination's name, for formats that record it
    bool strict = false;
    // The text of the model's config.json or params.json; empty where neither is known.
    std::string modelConfig;
    StopToken stop{};  // polled while a layout of many files is made
};

struct LeftOut {
    std::string name;
    std::string why;
};

// A tensor of the destination that is a copy of another one, such as the fp32 master of a weight.
struct TargetCopy {
    Path path;            // of the copy; empty: `of` is an alias, which becomes a tensor of its own
    TensorId of = kNone;  // id in the target before copies are added
    DType dtype = DType::float32;
    Role role = Role::optimizer;
    std::string why;
};

struct TargetFile {
    std::string path;   // relative to the destination
    uint64_t size = 0;  // exact
    bool metadata = false;
};

// Receives the bytes that are not tensor data: headers, padding, pickles, zip directories.
using LiteralSink = std::function<Status(FileId file, uint64_t offset, std::span<const std::byte> bytes)>;

// Where every byte of a destination goes. The executor writes chunk data at chunkOffset. It calls
// chunkLiterals() once for each complete chunk, then fileLiterals() once for each file whose chunks are
// complete. Together these write every byte exactly once, except padding, which reads as zero.
class TargetLayout {
  public:
    virtual ~TargetLayout() = default;

    std::vector<TargetFile> files;
    std::vector<FileId> chunkFile;      // by ChunkId of the target
    std::vector<uint64_t> chunkOffset;  // bytes; of the raw elements
    std::vector<LeftOut> changed;  // entries written in another form (a tied name recorded as alias, ...)
    bool needsCrc = false;         // the functions below use the CRC-32 values

    virtual Status chunkLiterals(ChunkId chunk, uint32_t crc32, const LiteralSink& sink) const = 0;
    // `chunkCrcs` is indexed by ChunkId, over all chunks.
    virtual Status fileLiterals(FileId file, std::span<const uint32_t> chunkCrcs,
                                const LiteralSink& sink) const = 0;
};

// ------------------------------------------------------------------ a format

// An option of one format for opening a checkpoint. The command line and the window offer it.
struct FormatOption {
    std::string name;   // "--tp-dim"
    std::string value;  // form of the value: "GLOB=DIM"
    std::string help;
    std::string title;    // of its field in the window: "Sharded dimensions"
    std::string example;  // of a value
    std::string unset;    // what applies without the option; for options with choices
    struct Choice {
        std::string value, meaning;
    };
    std::vector<Choice> choices;  // all valid values; empty = any text
    bool repeats = false;

    std::vector<std::string> values() const;  // of the choices
};

struct FormatInfo {
    std::string name;                   // "dcp", as in --to and --format
    std::string title;                  // "PyTorch distributed checkpoint (DCP)"
    std::vector<std::string> synonyms;  // other names that people type for it
    std::vector<std::string> suffixes;  // of the names of its files, without the dot; the usual one first
    // The format whose files this one uses, with names in a form of its own (--keys).
    std::string refines;
    // Formats whose probe also matches directories of this one, and why this one takes precedence.
    struct Precedence {
        std::string over, why;
    };
    std::vector<Precedence> before;
    std::vector<FormatOption> options;
    bool reads = false;
    bool writes = false;
    std::vector<std::string> generations;    // generations that are read, for `shardscope formats`
    std::vector<std::string> variants;       // what --variant accepts when writing
    std::vector<std::string> wholeVariants;  // the variants that hold whole tensors only
    // Synonyms that stand for a model which a framework loads, when one is written: weights alone, in this
    // variant, under the framework's names (as in the names of recipes).
    struct Model {
        std::string synonym, variant, names;
    };
    std::vector<Model> models;
    // What it can hold.
    bool shards = false;          // a tensor in several chunks on several ranks
    bool replicas = false;        // each rank's files hold all shards of that rank, replicas included
    bool wholeByDefault = false;  // its readers expect whole tensors unless asked otherwise
    bool objects = false;         // non-tensor entries
    bool aliases = false;         // two names of one storage
    bool nesting = false;         // paths, not only names
    // The subdirectory for a model's configuration and tokenizer: ".", "huggingface"; empty = none.
    std::string assets;
    bool singleFile = false;  // the destination is one file rather than a directory
    std::string fileVariant;  // the variant that writes one file, for a destination with the usual suffix
};

// A format as data and functions. Functions that a format does not set keep their defaults.
class Format {
  public:
    using Opened = Result<std::unique_ptr<Reader>>;
    using Laid = Result<std::unique_ptr<TargetLayout>>;
    using NewPath = std::function<std::optional<Path>(const Path& path, bool optimizer)>;
    using ReadValue = std::function<Result<Value>(ObjectId)>;
    using Placing = Result<Catalog> (*)(const Catalog& target, const std::optional<Mesh>& asked,
                                        const Catalog& source, const WriteOptions& options);

    FormatInfo about;
    // Looks at names and first bytes only.
    Probe (*probe)(const Source& source) = nullptr;
    Opened (*open)(const Source& source, const OpenOptions& options) = nullptr;
    // The path that this format's readers give an entry; nullopt where it equals the source's. `optimizer`:
    // the entry is part of an optimizer's state dict.
    std::optional<Path> (*pathFor)(const Path& path, bool optimizer) = [](const Path&, bool) {
        return std::optional<Path>();
    };
    // As pathFor, where the path depends on other entries of the source. An empty function: pathFor suffices.
    // `read` returns the value of an object and is not kept.
    NewPath (*pathsFor)(const Catalog& source, const ReadValue& read, const WriteOptions& options) =
        [](const Catalog&, const ReadValue&, const WriteOptions&) { return NewPath(); };
    // Returns `target` with the chunks that the framework's ranks would save. Null where the framework has no
    // rule for them. Used where the user gives no rules. `asked`: the user's mesh; without it the mesh of
    // `source` applies, if it means the same ranks. Errors: usage for axes that the framework does not have.
    Placing placing = nullptr;
    // Further tensors that this format needs: exact copies of tensors of `target`.
    std::vector<TargetCopy> (*copies)(const Catalog& target, const WriteOptions& options) =
        [](const Catalog&, const WriteOptions&) { return std::vector<TargetCopy>(); };
    // Which tensors (by name) and objects of `target` this format cannot hold, and why.
    std::vector<LeftOut> (*cannotHold)(const Catalog& target, const WriteOptions& options) =
        [](const Catalog&, const WriteOptions&) { return std::vector<LeftOut>(); };
    // Opens no file. `target` must outlive the layout, hold the objects' values, and cover each tensor
    // exactly with its chunks.
    Laid (*layout)(const Catalog& target, const WriteOptions& options) = notWritten;

    const FormatInfo& info() const { return about; }
    const std::vector<FormatOption>& options() const { return about.options; }
    bool takes(std::string_view option) const;

    static Laid notWritten(const Catalog& target, const WriteOptions& options);
};

}  // namespace shardscope
