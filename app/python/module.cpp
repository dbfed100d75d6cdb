// The native part of the Python package: open checkpoints, slices into memory that Python owns, and the JSON
// documents of docs/cli.md. What a Python programmer meets is in app/python/shardscope.
//
// Threads: every call that works lets go of the interpreter's lock, so calls of several Python threads run at
// the same time; a Checkpoint may be used by all of them. Ctrl-C in Python's main thread stops the call.
// Errors: each Error becomes a shardscope.Error with its fields.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answers/conversion.h"
#include "answers/documents.h"
#include "answers/extraction.h"
#include "answers/rank_shares.h"
#include "answers/reading.h"
#include "answers/stats.h"
#include "base/checked.h"
#include "base/option_words.h"
#include "call.h"
#include "engine/mapped.h"
#include "engine/masters.h"
#include "engine/report.h"
#include "engine/sample.h"
#include "engine/statistics.h"
#include "execute/region_reading.h"
#include "hosts/remote_file_system.h"
#include "plan/request_text.h"
#include "storage/named_path.h"

namespace shardscope::python {
namespace {

// ------------------------------------------------------------------ values of objects

// Plain data as Python's own; anything else is never made: `opaque` gets how it would be printed.
class Plain {
  public:
    Plain(const ValueGraph& graph, nb::handle opaque) : g_(graph), opaque_(opaque) {}

    nb::object operator()(NodeId node, int depth = 0) {
        if (depth > kMostDepth || ++nodes_ > kMostNodes) return opaque(node);
        switch (g_.kind(node)) {
            case ValueKind::none:
                return nb::none();
            case ValueKind::boolean:
                return nb::bool_(g_.boolean(node));
            case ValueKind::integer:
                return nb::int_(g_.integer(node));
            case ValueKind::bigInteger: {
                const std::string_view bytes = g_.text(node);
                const nb::object type = nb::module_::import_("builtins").attr("int");
                return type.attr("from_bytes")(nb::bytes(bytes.data(), bytes.size()), "little",
                                               nb::arg("signed") = true);
            }
            case ValueKind::real:
                return nb::float_(g_.real(node));
            case ValueKind::text: {
                const std::string_view text = g_.text(node);
                PyObject* object =
                    PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass");
                if (!object) {
                    PyErr_Clear();
                    return opaque(node);
                }
                return nb::steal(object);
            }
            case ValueKind::bytes:
                return nb::bytes(g_.text(node).data(), g_.text(node).size());
            case ValueKind::byteArray:
                return nb::steal(PyByteArray_FromStringAndSize(
                    g_.text(node).data(), static_cast<Py_ssize_t>(g_.text(node).size())));
            case ValueKind::list: {
                nb::list list;
                for (const NodeId item : itemsOf(node))
                    list.append((*this)(item, depth + 1));
                return list;
            }
            case ValueKind::tuple: {
                nb::list list;
                for (const NodeId item : itemsOf(node))
                    list.append((*this)(item, depth + 1));
                return nb::steal(PyList_AsTuple(list.ptr()));
            }
            case ValueKind::set:
            case ValueKind::frozenSet: {
                nb::list list;
                for (const NodeId item : itemsOf(node))
                    list.append((*this)(item, depth + 1));
                PyObject* made =
                    g_.kind(node) == ValueKind::set ? PySet_New(list.ptr()) : PyFrozenSet_New(list.ptr());
                if (!made) {
                    PyErr_Clear();
                    return opaque(node);
                }
                return nb::steal(made);
            }
            default:
                break;
        }
        if (!g_.isMapping(node)) return opaque(node);
        nb::dict dict;
        const std::span<const NodeId> pairs = g_.pairs(node);
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
            const nb::object key = (*this)(pairs[i], depth + 1);
            const nb::object value = (*this)(pairs[i + 1], depth + 1);
            if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) != 0) {
                PyErr_Clear();
                return opaque(node);
            }
        }
        return dict;
    }

  private:
    static constexpr int kMostDepth = 200;
    static constexpr size_t kMostNodes = 1'000'000;

    std::vector<NodeId> itemsOf(NodeId node) const {
        const auto items = g_.items(node);
        return {items.begin(), items.end()};
    }
    nb::object opaque(NodeId node) {
        // The graph outlives this call; the value does not own it.
        const Value value{std::shared_ptr<const ValueGraph>(std::shared_ptr<void>(), &g_), node};
        return opaque_(toText(valueKindName(value)), toText(valueRepr(value)));
    }

    const ValueGraph& g_;
    nb::handle opaque_;
    size_t nodes_ = 0;
};

// ------------------------------------------------------------------ an open checkpoint

constexpr uint64_t kReadMemory = uint64_t{256} << 20;  // of strided chunks that are held to be read in order

nb::tuple dimsOf(DimSpan dims) {
    nb::list list;
    for (const int64_t d : dims)
        list.append(d);
    return nb::steal<nb::tuple>(PyList_AsTuple(list.ptr()));
}

class OpenCheckpoint {
  public:
    OpenCheckpoint(Checkpoint checkpoint, std::shared_ptr<RemoteHost> host, std::shared_ptr<Asked> asked)
        : asked_(std::move(asked)),
          host_(std::move(host)),
          checkpoint_(std::move(checkpoint)),
          process_(getpid()) {}

    // A forked process has the files, but not the threads that read them.
    const Checkpoint& get() const {
        if (getpid() != process_)
            raise(makeError(ErrorCode::usage,
                            "the checkpoint was opened by another process, from which this "
                            "one was forked")
                      .inFile(checkpoint_.path)
                      .withHint("open it again in this process"));
        return checkpoint_;
    }
    // What Python sees: the checkpoint's own, or what a recipe makes of it.
    const Catalog& catalog() const { return mapped_ ? (get(), mapped_->target) : get().catalog(); }
    // `precise`: the same with the values of masters, where there are some.
    void map(TargetSpec spec, std::optional<TargetSpec> precise) {
        mapped_ = std::move(spec);
        precise_ = std::move(precise);
    }
    // The tensor with the values of a weight's fp32 master, by a number that facts() and read() know; kNone =
    // there is none. Those of a recipe are counted behind all tensors.
    TensorId master(TensorId t) const {
        if (precise_) {
            const TensorId found = precise_->target.find(catalog().name(t));
            const bool more = found != kNone && dtypePrecision(precise_->target.dtype(found)) >
                                                    dtypePrecision(catalog().dtype(t));
            return more ? static_cast<TensorId>(catalog().tensorCount()) + found : kNone;
        }
        if (mapped_) return kNone;
        std::call_once(mastersFound_, [this] { masters_ = mastersOf(checkpoint_.catalog()); });
        return masters_.empty() ? kNone : masters_[t];
    }
    // The catalog that a number of a tensor is of, and its number there.
    std::pair<const Catalog*, TensorId> place(uint32_t t) const {
        const size_t count = catalog().tensorCount();
        if (!precise_ || t < count) return {&catalog(), tensor(t)};
        if (t - count >= precise_->target.tensorCount()) throw nb::index_error("no tensor has this number");
        return {&precise_->target, static_cast<TensorId>(t - count)};
    }
    TensorId tensor(uint32_t t) const {
        if (t >= catalog().tensorCount()) throw nb::index_error("no tensor has this number");
        return t;
    }
    const Reader& reader() const { return *checkpoint_.reader; }
    const Opening& opening() const { return asked_->access; }
    bool isOnOtherHost() const { return host_ != nullptr; }
    Result<uint64_t> read(const std::vector<RegionRead>& all, const Resources& resources) const {
        SHARDSCOPE_TRY(needData(checkpoint_, "reading values"));
        const auto count = static_cast<TensorId>(catalog().tensorCount());
        std::vector<RegionRead> reads, precise;
        for (const RegionRead& read : all) {
            (read.tensor < count ? reads : precise).push_back(read);
            if (read.tensor >= count) precise.back().tensor -= count;
        }
        uint64_t bytes = 0;
        if (!precise.empty()) {
            SHARDSCOPE_ASSIGN(bytes, readPlannedRegions(reader(), *precise_, precise, resources));
        }
        SHARDSCOPE_ASSIGN(const uint64_t others, readStored(reads, resources));
        return bytes + others;
    }
    Result<uint64_t> readStored(const std::vector<RegionRead>& reads, const Resources& resources) const {
        if (mapped_) return readPlannedRegions(reader(), *mapped_, reads, resources);
        return readRegions(reader(), reads, FillGaps::refuse, resources);
    }
    // The chunk whose stored bytes are the tensor's own, all of them in order; nothing where there is none.
    Result<std::optional<Extent>> storedWhole(TensorId t) const {
        if (mapped_) {
            const TensorId from = mapped_->sources[t].source;
            if (from == kNone || checkpoint_.catalog().dtype(from) != mapped_->target.dtype(t))
                return std::optional<Extent>();
            t = from;
        }
        const Catalog& c = checkpoint_.catalog();
        SHARDSCOPE_TRY(needData(checkpoint_, "reading values"));
        if (host_) return std::optional<Extent>();
        const ChunkId chunk = c.firstChunk(t);
        const DimSpan shape = c.shape(t);
        if (c.endChunk(t) != chunk + 1 || c.special(t) != kNone || !dtypeIsWholeBytes(c.dtype(t)))
            return std::optional<Extent>();
        const ChunkInfo info = c.chunk(t, chunk);
        if (info.flat || !std::ranges::equal(info.lengths, shape)) return std::optional<Extent>();
        SHARDSCOPE_ASSIGN(Extent extent, reader().locate(chunk));
        const bool plain = (extent.strides.empty() || extent.strides == rowMajorStrides(shape)) &&
                           !extent.swapBytes && !extent.conjugate && !extent.negate && !extent.storedAs &&
                           rangeFits(extent.offset, c.bytes(t), extent.file->size());
        return plain ? std::optional<Extent>(std::move(extent)) : std::optional<Extent>();
    }
    // Those of a recipe have their values with them.
    Result<Value> objectValue(ObjectId id) const {
        return mapped_ ? Result<Value>(mapped_->target.objects()[id].value) : reader().objectValue(id);
    }
    // Without a look at the process: for work on other threads.
    const Checkpoint& checkpoint() const { return checkpoint_; }

  private:
    std::shared_ptr<Asked> asked_;      // with the stop source that the reader polls
    std::shared_ptr<RemoteHost> host_;  // before what reads through it
    Checkpoint checkpoint_;
    std::optional<TargetSpec> mapped_, precise_;
    mutable std::once_flag mastersFound_;
    mutable std::vector<TensorId> masters_;
    pid_t process_;
};

Result<std::unique_ptr<OpenCheckpoint>> openWith(std::shared_ptr<Asked> asked, const std::string& path) {
    CheckpointOptions options = asked->access.openOptions();
    std::shared_ptr<RemoteHost> host;
    if (isSshPath(path)) {
        SHARDSCOPE_ASSIGN(const SshPath there, parseSshPath(path));
        SHARDSCOPE_ASSIGN(host, remoteHost(there.host, asked->program));
        SHARDSCOPE_TRY(host->connect());
        options.fileSystem = remoteFileSystem(host);
    }
    SHARDSCOPE_ASSIGN(Checkpoint stored, openCheckpoint(path, options));
    SHARDSCOPE_ASSIGN(Checkpoint checkpoint, asked->access.asAsked(std::move(stored), asked->access.stop));
    return std::make_unique<OpenCheckpoint>(std::move(checkpoint), std::move(host), std::move(asked));
}

// None where the path is the directory of a run.
nb::object openAny(nb::list options, nb::str path, nb::str program) {
    const std::string where = fromText(path);
    const auto how = asked("info", options, fromText(program));
    Call call(*how);
    auto opened = valueOf(call.run([&](Call&) -> Result<std::unique_ptr<OpenCheckpoint>> {
        if (isSshPath(where)) return openWith(how, where);
        SHARDSCOPE_ASSIGN(auto found, how->access.openAny(where));
        auto* const checkpoint = std::get_if<Checkpoint>(&found);
        if (!checkpoint) return std::unique_ptr<OpenCheckpoint>();
        return std::make_unique<OpenCheckpoint>(std::move(*checkpoint), nullptr, how);
    }));
    return opened ? nb::cast(opened.release(), nb::rv_policy::take_ownership) : nb::none();
}

OpenCheckpoint* openPath(nb::list options, nb::str path, nb::str program, nb::str map, nb::list set,
                         nb::list rename) {
    const auto how = asked("info", options, fromText(program));
    const std::string where = fromText(path);
    Mapping mapping{fromText(map), wordsOf(set), {}, MasterWeights::ignore};
    for (const std::string& rule : wordsOf(rename))
        mapping.rename.push_back(valueOf(parseRenameRule(rule)));
    Call call(*how);
    auto opened = valueOf(call.run([&](Call& c) -> Result<std::unique_ptr<OpenCheckpoint>> {
        // What was asked for lives as long as the checkpoint.
        SHARDSCOPE_ASSIGN(auto open, openWith(how, where));
        if (!mapping.map.empty() || !mapping.set.empty() || !mapping.rename.empty()) {
            SHARDSCOPE_ASSIGN(TargetSpec spec, mappedBy(open->checkpoint(), mapping, c.stop()));
            std::optional<TargetSpec> precise;
            if (!mastersOf(open->checkpoint().catalog()).empty()) {
                mapping.masterWeights = MasterWeights::use;
                SHARDSCOPE_ASSIGN(precise, mappedBy(open->checkpoint(), mapping, c.stop()));
            }
            open->map(std::move(spec), std::move(precise));
        }
        return open;
    }));
    return opened.release();
}

nb::object infoOf(const OpenCheckpoint& open) {
    const Checkpoint& checkpoint = open.get();
    return toText(dump(infoJson(checkpoint, checkpoint.path, summaryOf(checkpoint))));
}

nb::object rankSharesOf(const OpenCheckpoint& open) {
    const Catalog& catalog = open.get().catalog();
    return toText(dump(rankSharesJson(catalog, rankShares(catalog))));
}

nb::list namesOf(const OpenCheckpoint& open) {
    nb::list names;
    const Catalog& catalog = open.catalog();
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        names.append(toText(catalog.name(t)));
    return names;
}

int64_t find(const OpenCheckpoint& open, nb::str name) {
    const TensorId t = open.catalog().find(fromText(name));
    return t == kNone ? -1 : int64_t{t};
}

// Numbers of the tensors whose names match, in the checkpoint's order.
nb::list matching(const OpenCheckpoint& open, nb::str pattern) {
    const Catalog& catalog = open.catalog();
    const NamePattern names = valueOf(NamePattern::parse(fromText(pattern)));
    nb::list found;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        if (names.matches(catalog.name(t))) found.append(t);
    return found;
}

// By the first stored byte of each. What a recipe makes stays in the checkpoint's order.
nb::list inFileOrder(const OpenCheckpoint& open) {
    const Catalog& catalog = open.catalog();
    const auto place = [&](TensorId t) {
        std::pair<FileId, uint64_t> first{kNone, 0};
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            first = std::min(first, {chunk.file, chunk.offset});
        }
        return first;
    };
    std::vector<std::pair<std::pair<FileId, uint64_t>, TensorId>> order;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        order.emplace_back(place(t), t);
    std::ranges::sort(order);
    nb::list ids;
    for (const auto& [at, t] : order)
        ids.append(t);
    return ids;
}

// That hold some of it, in order.
nb::list ranksOf(const OpenCheckpoint& open, uint32_t number) {
    const auto [catalog, t] = open.place(number);
    std::set<uint32_t> ranks;
    for (ChunkId c = catalog->firstChunk(t); c < catalog->endChunk(t); ++c)
        if (const uint32_t rank = catalog->chunk(t, c).rank; rank != kNone) ranks.insert(rank);
    nb::list list;
    for (const uint32_t rank : ranks)
        list.append(rank);
    return list;
}

nb::tuple factsOf(const OpenCheckpoint& open, uint32_t number) {
    const auto [found, t] = open.place(number);
    const Catalog& catalog = *found;
    return nb::make_tuple(
        toText(catalog.name(t)), toText(dtypeName(catalog.dtype(t))), dimsOf(catalog.shape(t)),
        toText(roleName(catalog.role(t))), catalog.bytes(t),
        catalog.aliasOf(t) == kNone ? nb::object(nb::none()) : toText(catalog.name(catalog.aliasOf(t))));
}

// The number of the tensor with the values of its master; -1 where there is none.
int64_t masterOf(const OpenCheckpoint& open, uint32_t t) {
    const TensorId master = open.master(open.tensor(t));
    return master == kNone ? -1 : int64_t{master};
}

nb::tuple partsOf(const Path& path) {
    nb::list parts;
    for (const PathPart& part : path) {
        switch (part.kind) {
            case PathPart::Kind::integerKey:
            case PathPart::Kind::index:
            case PathPart::Kind::tupleIndex:
                parts.append(part.index);
                break;
            default:
                parts.append(toText(part.text));
        }
    }
    return nb::steal<nb::tuple>(PyList_AsTuple(parts.ptr()));
}

nb::object tensorDocument(const OpenCheckpoint& open, uint32_t t) {
    return toText(dump(tensorJson(open.catalog(), open.tensor(t), true)));
}

nb::list objectNames(const OpenCheckpoint& open) {
    nb::list names;
    for (const ObjectInfo& object : open.catalog().objects())
        names.append(toText(object.name));
    return names;
}

const ObjectInfo& objectAt(const OpenCheckpoint& open, uint32_t id) {
    const auto& objects = open.catalog().objects();
    if (id >= objects.size()) throw nb::index_error("no object has this number");
    return objects[id];
}

nb::object objectValue(const OpenCheckpoint& open, uint32_t id, nb::object opaque) {
    objectAt(open, id);
    Call call;
    const Value value = valueOf(call.run([&](Call&) { return open.objectValue(id); }));
    if (!value) return nb::none();
    return Plain(*value.graph, opaque)(value.node);
}

// One reading as Python gives it: tensor, starts, counts, steps, address, strides (elements).
RegionRead regionOf(const OpenCheckpoint& open, nb::handle tuple) {
    RegionRead read;
    const auto dims = [](nb::handle list) { return nb::cast<std::vector<int64_t>>(list); };
    read.tensor = nb::cast<uint32_t>(tuple[0]);
    open.place(read.tensor);
    read.starts = dims(tuple[1]);
    read.counts = dims(tuple[2]);
    read.steps = dims(tuple[3]);
    read.to = reinterpret_cast<std::byte*>(nb::cast<uintptr_t>(tuple[4]));
    read.toStrides = dims(tuple[5]);
    return read;
}

uint64_t readInto(const OpenCheckpoint& open, nb::list list, unsigned threads, nb::object progress) {
    open.get();
    std::vector<RegionRead> reads;
    uint64_t elements = 0;
    for (nb::handle item : list) {
        reads.push_back(regionOf(open, item));
        uint64_t count = 1;
        for (const int64_t n : reads.back().counts)
            count *= static_cast<uint64_t>(std::max<int64_t>(n, 0));
        elements += count;
    }
    const auto work = [&](const StopSource& stop, Progress& counted) -> Result<uint64_t> {
        MemoryBudget memory(kReadMemory);
        std::optional<ThreadPool> own;
        if (threads > 0) own.emplace(threads);
        Resources resources;
        resources.pool = own ? &*own : &sharedPool();
        resources.memory = &memory;
        resources.stop = stop;
        resources.progress = &counted;
        return open.read(reads, resources);
    };
    Progress counted;
    // A thread of its own is dearer than a small reading.
    if (elements <= 65536 && progress.is_none()) {
        const StopSource never;
        std::optional<Result<uint64_t>> done;
        {
            nb::gil_scoped_release released;
            done.emplace(work(never, counted));
        }
        return valueOf(std::move(*done));
    }
    Call call;
    return valueOf(call.run(
        [&](Call& c) {
            const auto watching = c.watch(counted);
            return work(c.stop(), counted);
        },
        progress));
}

// Where the bytes of a whole tensor are in one file, to be mapped into memory: a descriptor of the file,
// which the caller closes, its path, its size and the offset there. None where they have to be read.
nb::object storedWhole(const OpenCheckpoint& open, uint32_t t) {
    if (open.place(t).first != &open.catalog()) return nb::none();
    const std::optional<Extent> extent = valueOf(open.storedWhole(t));
    if (!extent) return nb::none();
    // The checkpoint has opened it with all care that names in metadata need: this must be that file.
    const Fingerprint print = valueOf(extent->file->fingerprint());
    const int fd = ::open(extent->file->path().c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_dev != print.device || info.st_ino != print.inode ||
        static_cast<uint64_t>(info.st_size) != extent->file->size()) {
        if (fd >= 0) close(fd);
        return nb::none();
    }
    return nb::make_tuple(fd, toText(extent->file->path()), extent->file->size(), extent->offset);
}

// Asks the kernel for large pages, for memory that has not been written to. Where it grants them on request
// (transparent_hugepage is "madvise"), the first writes cause fewer page faults.
void useLargePages(uintptr_t address, size_t bytes) {
    const auto page = static_cast<uintptr_t>(getpagesize());
    const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
    if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// ------------------------------------------------------------------ verbs

// Validates as the options say; `answer` makes a document of the report.
nb::object judged(const OpenCheckpoint& open, Asked& how, ValidateRequest what, const nb::object& progress,
                  const std::function<std::string(const Checkpoint&, const ValidationReport&)>& answer) {
    const Checkpoint& checkpoint = open.get();
    what.path = checkpoint.path;
    // As it was opened, for workers that open it too.
    static_cast<Opening&>(how.access) = open.opening();
    Call call(how);
    return toText(valueOf(call.run(
        [&](Call&) -> Result<std::string> {
            SHARDSCOPE_ASSIGN(const Execution by, readersOf(how.access, how.parts, how.program));
            if (open.isOnOtherHost() && !std::holds_alternative<Alone>(by))
                return makeError(ErrorCode::usage, "workers read no checkpoint of another host")
                    .withHint("run them there, or where its files are mounted");
            SHARDSCOPE_ASSIGN(const ValidatedInParts done,
                              validateBy(how.access, checkpoint, what, by, how.parts.records));
            const std::string said = answer(checkpoint, done.report);
            if (done.read.found) SHARDSCOPE_TRY(done.read.found->remove());
            return said;
        },
        progress)));
}

nb::object validate(const OpenCheckpoint& open, nb::list options, nb::str level, nb::str expect,
                    size_t examples, nb::str program, nb::object progress) {
    ValidateRequest what;
    what.level = valueOf(levelNamed(fromText(level)));
    what.expect = fromText(expect);
    what.examples = examples;
    return judged(open, *asked("validate", options, fromText(program)), std::move(what), progress,
                  [](const Checkpoint&, const ValidationReport& report) { return validationJson(report); });
}

// The resume card, judged as strictly as validate().
nb::object ready(const OpenCheckpoint& open, nb::list options, nb::str level, nb::object progress) {
    ValidateRequest what;
    what.level = valueOf(levelNamed(fromText(level)));
    what.examples = kReadyExamples;
    return judged(open, *asked("ready", options), std::move(what), progress,
                  [](const Checkpoint& checkpoint, const ValidationReport& report) {
                      return dump(readinessJson({}, {readyCard(checkpoint, report, {}), {}}));
                  });
}

nb::object stats(const OpenCheckpoint& open, nb::list options, nb::str by, nb::object progress) {
    const ValuesBy chosen = valueOf(valuesByNamed(fromText(by)));
    const auto how = asked("stats", options);
    Call call(*how);
    return toText(valueOf(call.run(
        [&](Call&) -> Result<std::string> {
            SHARDSCOPE_ASSIGN(const Stats found, statsOf(how->access, open.get(), chosen));
            return dump(statsJson(how->access, found));
        },
        progress)));
}

// Runs work(access) as the options of the verb say, with what the checkpoint was opened with.
template <class Work>
nb::object documentOf(const OpenCheckpoint& open, const std::shared_ptr<Asked>& how,
                      const nb::object& progress, Work&& work) {
    open.get();
    static_cast<Opening&>(how->access) = open.opening();
    Call call(*how);
    return toText(dump(valueOf(
        call.run([&](Call&) -> Result<Json> { return work(std::as_const(how->access)); }, progress))));
}

// For what is done with tensors as they are stored. Raises where a recipe makes others of them.
const Checkpoint& asStored(const OpenCheckpoint& open, std::string_view what) {
    const Checkpoint& checkpoint = open.get();
    if (&open.catalog() == &checkpoint.catalog()) return checkpoint;
    raise(makeError(ErrorCode::unsupported,
                    fmt::format("{} of tensors as they are stored, not of what a recipe makes", what))
              .withHint("convert it, or open it without a recipe"));
}

nb::object digestOf(const OpenCheckpoint& open, nb::list options, nb::str pattern, nb::str algorithm,
                    nb::str program, nb::object progress) {
    const auto how = asked("digest", options, fromText(program));
    const Checkpoint& checkpoint = asStored(open, "digests are");
    const DigestRequest what{checkpoint.path, fromText(pattern), fromText(algorithm)};
    if (!std::ranges::count(kDigestAlgorithms, what.algorithm))
        raise(makeError(ErrorCode::usage, fmt::format("there is no algorithm '{}'", what.algorithm))
                  .withHint(fmt::format("{}", fmt::join(kDigestAlgorithms, ", "))));
    return documentOf(open, how, progress, [&](const Access& access) -> Result<Json> {
        SHARDSCOPE_ASSIGN(const Execution by, readersOf(access, how->parts, how->program));
        SHARDSCOPE_ASSIGN(const Digested done, digestOpen(access, checkpoint, what, by, how->parts.records));
        if (done.read.found) SHARDSCOPE_TRY(done.read.found->remove());
        return digestJson(checkpoint.catalog(), what.algorithm, done.digests);
    });
}

nb::object indexOf(const OpenCheckpoint& open, nb::str file, bool overwrite) {
    const Checkpoint& checkpoint = open.get();
    const std::string given = namedPath(fromText(file));
    const std::string into = given.empty() ? indexName(checkpoint.path) : given;
    return documentOf(
        open, asked("index", nb::list()), nb::none(), [&](const Access& access) -> Result<Json> {
            SHARDSCOPE_ASSIGN(const uint64_t bytes, writeIndex(checkpoint, into, overwrite, access.stop));
            return indexJson(checkpoint.path, into, bytes, checkpoint.catalog());
        });
}

nb::object extractOf(const OpenCheckpoint& open, nb::list options, nb::str tensor, nb::str file,
                     bool overwrite, nb::object progress) {
    const Checkpoint& checkpoint = asStored(open, "files are");
    const ExtractRequest what{fromText(tensor), namedPath(fromText(file)), overwrite};
    return documentOf(open, asked("extract", options), progress, [&](const Access& access) -> Result<Json> {
        SHARDSCOPE_ASSIGN(const Extracted done, extractTensor(access, checkpoint, what));
        return extractJson(checkpoint.catalog(), what, done);
    });
}

// One tensor with its values: shardscope.show/1.
nb::object showOf(const OpenCheckpoint& open, nb::list options, uint32_t tensor, nb::object progress) {
    const Checkpoint& checkpoint = asStored(open, "statistics are");
    const TensorId t = open.tensor(tensor);
    return documentOf(open, asked("show", options), progress, [&](const Access& access) -> Result<Json> {
        Work work(access, checkpoint.catalog().memoryBytes());
        SHARDSCOPE_TRY(work.start());
        SHARDSCOPE_ASSIGN(const TensorStatistics values,
                          tensorStatistics(*checkpoint.reader, t, 64, work.resources()));
        return showJson(checkpoint.catalog(), t, {}, &values);
    });
}

// (name, what it takes, names) of each option of a verb.
nb::list optionTable(nb::str verb) {
    constexpr const char* kTakes[] = {"text", "texts", "yes", "number", "size", "name"};
    nb::list table;
    for (const KnownOption& option : optionsOf(fromText(verb))) {
        nb::list names;
        for (const std::string& name : option.names)
            names.append(toText(name));
        table.append(nb::make_tuple(toText(option.name), kTakes[static_cast<size_t>(option.takes)], names));
    }
    return table;
}

nb::object reportHtml(const OpenCheckpoint& open, nb::str report) {
    return toText(validationHtml(open.get(), valueOf(validationFromJson(fromText(report)))));
}

nb::object diff(const OpenCheckpoint& a, const OpenCheckpoint& b, nb::list options, nb::object progress) {
    const Checkpoint &first = a.get(), &second = b.get();
    const auto how = asked("diff", options);
    Call call(*how);
    return toText(valueOf(call.run(
        [&](Call&) -> Result<std::string> {
            SHARDSCOPE_ASSIGN(DiffOptions difference, diffOptions(how->request));
            difference.values = how->values;
            SHARDSCOPE_ASSIGN(const DiffReport report, diffOpen(how->access, first, second, difference));
            return dump(diffJson(report));
        },
        progress)));
}

// plan, convert, reshard, average: the plan of the first, else the report.
nb::object convert(nb::str verb, nb::list places, nb::list options, nb::str program, nb::object progress) {
    const std::string what = fromText(verb);
    const auto how = asked(what, options, fromText(program));
    ConversionRequest& request = how->request;
    std::vector<std::string> ends = wordsOf(places);
    if (ends.size() < (what == "average" ? 3 : 2))
        raise(makeError(ErrorCode::usage, "an average is of two checkpoints at least"));
    request.destination = std::move(ends.back());
    ends.pop_back();
    request.source = std::move(ends.back());
    ends.pop_back();
    request.average = std::move(ends);
    Call call(*how);
    return toText(valueOf(call.run(
        [&](Call&) -> Result<std::string> {
            SHARDSCOPE_ASSIGN(const Execution execution, executionOf(request, how->parts, how->program));
            SHARDSCOPE_ASSIGN(const auto conversion,
                              Conversion::prepare(request, execution, how->access.stop));
            if (how->dryRun) return dump(planJson(how->access, *conversion));
            SHARDSCOPE_ASSIGN(const Json report, runToReport(how->access, *conversion, request.verify));
            return dump(report);
        },
        progress)));
}

}  // namespace
}  // namespace shardscope::python

NB_MODULE(_shardscope, m) {
    using namespace shardscope::python;
    using shardscope::Reader;
    shardscope::wordOptions(keywordOption);
    m.attr("__version__") = SHARDSCOPE_VERSION;
    nb::class_<OpenCheckpoint>(m, "OpenCheckpoint")
        .def("info", &infoOf)
        .def("rank_shares", &rankSharesOf)
        .def_prop_ro("path", [](const OpenCheckpoint& open) { return toText(open.checkpoint().path); })
        .def_prop_ro("chosen", [](const OpenCheckpoint& open) { return toText(open.checkpoint().chosen); })
        .def_prop_ro("format",
                     [](const OpenCheckpoint& open) { return toText(open.checkpoint().catalog().format()); })
        .def("check", [](const OpenCheckpoint& open) { open.get(); })
        .def("names", &namesOf)
        .def("find", &find, nb::arg("name"))
        .def(
            "similar",
            [](const OpenCheckpoint& open, nb::str name) {
                return toText(shardscope::similarTensor(open.catalog(), fromText(name)));
            },
            nb::arg("name"))
        .def("ranks", &ranksOf, nb::arg("tensor"))
        .def("matching", &matching, nb::arg("pattern"))
        .def("in_file_order", &inFileOrder)
        .def("show", &showOf, nb::arg("options"), nb::arg("tensor"), nb::arg("progress").none())
        .def("count", [](const OpenCheckpoint& open) { return open.catalog().tensorCount(); })
        .def("facts", &factsOf, nb::arg("tensor"))
        .def(
            "path_of",
            [](const OpenCheckpoint& open, uint32_t t) {
                return partsOf(open.catalog().path(open.tensor(t)));
            },
            nb::arg("tensor"))
        .def("master", &masterOf, nb::arg("tensor"))
        .def("document", &tensorDocument, nb::arg("tensor"))
        .def(
            "placement",
            [](const OpenCheckpoint& open, uint32_t t) {
                return shardscope::placementCells(open.catalog(), open.tensor(t));
            },
            nb::arg("tensor"))
        .def("object_names", &objectNames)
        .def(
            "object_path",
            [](const OpenCheckpoint& open, uint32_t id) { return partsOf(objectAt(open, id).path); },
            nb::arg("object"))
        .def("object_value", &objectValue, nb::arg("object"), nb::arg("opaque"))
        .def("stored_whole", &storedWhole, nb::arg("tensor"))
        .def("read", &readInto, nb::arg("reads"), nb::arg("threads"), nb::arg("progress").none())
        .def("digest", &digestOf, nb::arg("options"), nb::arg("pattern"), nb::arg("algorithm"),
             nb::arg("program"), nb::arg("progress").none())
        .def("index", &indexOf, nb::arg("file"), nb::arg("overwrite"))
        .def("extract", &extractOf, nb::arg("options"), nb::arg("tensor"), nb::arg("file"),
             nb::arg("overwrite"), nb::arg("progress").none())
        .def("stats", &stats, nb::arg("options"), nb::arg("by"), nb::arg("progress") = nb::none())
        .def("ready", &ready, nb::arg("options"), nb::arg("level"), nb::arg("progress") = nb::none())
        .def("validate", &validate, nb::arg("options"), nb::arg("level"), nb::arg("expect"),
             nb::arg("examples"), nb::arg("program"), nb::arg("progress").none())
        .def("html", &reportHtml, nb::arg("report"));
    m.def("open", &openPath, nb::arg("options"), nb::arg("path"), nb::arg("program"), nb::arg("map"),
          nb::arg("set"), nb::arg("rename"), nb::rv_policy::take_ownership);
    m.def("open_any", &openAny, nb::arg("options"), nb::arg("path"), nb::arg("program"));
    m.def("options", &optionTable, nb::arg("verb"));
    m.def("formats", [] { return toText(shardscope::dump(shardscope::formatsJson())); });
    m.def("recipes", [] { return toText(shardscope::dump(shardscope::recipesJson())); });
    addRuns(m);
    addSave(m);
    m.def("sample", [] { return toText(valueOf(shardscope::sampleCheckpoint())); });
    m.def("use_large_pages", &useLargePages, nb::arg("address"), nb::arg("bytes"));
    m.def("diff", &diff, nb::arg("a"), nb::arg("b"), nb::arg("options"), nb::arg("progress").none());
    m.def("convert", &convert, nb::arg("verb"), nb::arg("places"), nb::arg("options"), nb::arg("program"),
          nb::arg("progress").none());
}
