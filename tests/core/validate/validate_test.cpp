#include "validate/validate.h"

#include <QtTest>
#include <algorithm>

#include "engine/engine.h"
#include "formats/dcp/dcp.h"
#include "formats/safetensors/safetensors.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"
#include "validate/value_scan.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

const std::string kGenuine = SHARDSCOPE_TEST_DATA "/genuine/";

ValidationReport validated(const Reader& reader, ValidateLevel level, const Catalog* expect = nullptr) {
    static ThreadPool pool(2);
    static MemoryBudget memory(uint64_t{64} << 20);
    Resources resources;
    resources.pool = &pool;
    resources.memory = &memory;
    ValidateOptions options;
    options.level = level;
    options.expect = expect;
    auto report = validateCheckpoint(reader, options, resources);
    if (!report.ok()) qFatal("%s", describe(report.error()).c_str());
    return std::move(report).value();
}

QString text(const ValidationReport& report) {
    QString out;
    for (const Finding& f : report.findings) {
        out += QString("\n  %1 %2 x%3: %4 [%5]")
                   .arg(QString::fromStdString(f.rule), QString::fromUtf8(severityName(f.severity).data()))
                   .arg(f.count)
                   .arg(QString::fromStdString(f.message), QString::fromStdString(f.cause));
        for (const FindingExample& e : f.examples) {
            out += QString("\n      %1 rank %2 %3 %4 %5")
                       .arg(QString::fromStdString(e.tensor))
                       .arg(static_cast<int>(e.rank))
                       .arg(QString::fromStdString(e.file),
                            e.box ? QString::fromStdString(formatBox(e.box->offsets, e.box->lengths))
                                  : QString(),
                            QString::fromStdString(e.detail));
        }
    }
    return out;
}

const Finding* findRule(const ValidationReport& report, std::string_view rule) {
    const auto it = std::find_if(report.findings.begin(), report.findings.end(),
                                 [&](const Finding& f) { return f.rule == rule; });
    return it == report.findings.end() ? nullptr : &*it;
}

}  // namespace

// Asks for a stop at the n-th look for a chunk, counted from 1.
class StoppingReader final : public Reader {
  public:
    StoppingReader(const Reader& inner, uint64_t stopAt) : inner_(inner), stopAt_(stopAt) {}
    const Catalog& catalog() const override { return inner_.catalog(); }
    Result<Extent> locate(ChunkId chunk) const override {
        if (++count == stopAt_) stop.requestStop();
        return inner_.locate(chunk);
    }
    Result<Value> objectValue(ObjectId object) const override { return inner_.objectValue(object); }
    Result<std::vector<Note>> fileNotes() const override { return inner_.fileNotes(); }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        return inner_.openFile(file);
    }
    mutable std::atomic<uint64_t> count{0};
    mutable StopSource stop;

  private:
    const Reader& inner_;
    const uint64_t stopAt_;
};

class ValidateTest : public QObject {
    Q_OBJECT

  private slots:
    void resumesStoppedScan_data() {
        QTest::addColumn<QString>("path");
        for (const GenuineCase& c : allGenuineCases())
            QTest::newRow(c.id().c_str()) << QString::fromStdString(c.openPath());
    }
    // However often reading is stopped, what is found in the end is the same.
    void resumesStoppedScan() {
        QFETCH(QString, path);
        const auto opened = openCheckpoint(path.toStdString());
        if (!opened.ok()) return;  // genuine_test says whether it may be so
        const Reader& whole = *opened->reader;
        const ValidationReport atOnce = validated(whole, ValidateLevel::values);
        ThreadPool pool(1);
        MemoryBudget memory(uint64_t{64} << 20);
        const auto run = [&](const StoppingReader& reader, const std::shared_ptr<ValueScan>& scan,
                             ValidateLevel level) {
            Resources resources;
            resources.pool = &pool;
            resources.memory = &memory;
            resources.stop = reader.stop;
            ValidateOptions options;
            options.level = level;
            options.scan = scan;
            return validateCheckpoint(reader, options, resources);
        };
        const StoppingReader counting(whole, 0);
        QVERIFY(run(counting, nullptr, ValidateLevel::files).ok());
        auto scan = std::make_shared<ValueScan>();
        uint64_t before = 0;
        for (int attempt = 0; attempt < 10'000; ++attempt) {
            // A few chunks each time; both threads may be in the middle of one.
            const bool left = scan->chunks() == 0 || scan->chunksRead() < scan->chunks();
            const StoppingReader reader(whole,
                                        left ? counting.count + 2 + static_cast<uint64_t>(attempt) : 0);
            const auto report = run(reader, scan, ValidateLevel::values);
            QVERIFY2(report.ok(), report.ok() ? "" : describe(report.error()).c_str());
            if (!report->stopped) {
                QCOMPARE(text(*report), text(atOnce));
                QVERIFY(report->notChecked == atOnce.notChecked);
                return;
            }
            QVERIFY(!report->notChecked.empty());
            QVERIFY(scan->chunksRead() >= before);
            QVERIFY(scan->chunksRead() <= scan->chunks());
            before = scan->chunksRead();
            if (attempt % 2 == 0) continue;
            // Every other time in another process, as it were.
            auto again = ValueScan::restore(scan->save(), whole.catalog());
            QVERIFY2(again.ok(), again.ok() ? "" : describe(again.error()).c_str());
            QCOMPARE((*again)->chunksRead(), scan->chunksRead());
            QCOMPARE((*again)->save(), scan->save());
            scan = std::move(again).value();
        }
        QFAIL("it never came to its end");
    }

    // What is stored of a reading may be cut, altered, or of another checkpoint.
    void storedScanIsChecked() {
        const auto opened = dcpFormat().open(sourceOf(kGenuine + "dcp/t2.15.0-fsdp2-tp/ckpt"), {});
        QVERIFY(opened.ok());
        ThreadPool pool(1);
        MemoryBudget memory(uint64_t{64} << 20);
        Resources resources;
        resources.pool = &pool;
        resources.memory = &memory;
        ValidateOptions options;
        options.level = ValidateLevel::values;
        options.scan = std::make_shared<ValueScan>();
        QVERIFY(validateCheckpoint(**opened, options, resources).ok());
        const std::string bytes = options.scan->save();
        const Catalog& catalog = (*opened)->catalog();
        QVERIFY(ValueScan::restore(bytes, catalog).ok());
        for (size_t size = 0; size < bytes.size(); ++size)
            QVERIFY(!ValueScan::restore(std::string_view(bytes).substr(0, size), catalog).ok());
        for (size_t at = 0; at < bytes.size(); at += 7) {
            std::string altered = bytes;
            altered[at] = static_cast<char>(altered[at] ^ 4);
            QVERIFY(!ValueScan::restore(altered, catalog).ok());
        }
        const auto another = dcpFormat().open(sourceOf(kGenuine + "dcp/t2.15.0-pipeline/ckpt"), {});
        QVERIFY(another.ok());
        QVERIFY(!ValueScan::restore(bytes, (*another)->catalog()).ok());
    }

    // So may be what a part has left of a segment.
    void storedSegmentIsChecked() {
        SeenSegment segment;
        segment.seen.any = true;
        segment.seen.counts = {400, 3, 2, 1};
        segment.seen.negative = 5;
        segment.seen.first.fill(std::byte{7});
        segment.crc = 0xdeadbeef;
        segment.pieces = {{1, 2}, {3, UINT64_MAX}};
        const std::string bytes = packSegment(segment);
        const auto again = unpackSegment(bytes);
        QVERIFY(again);
        QVERIFY(again->seen.any && again->seen.uniform && again->seen.first == segment.seen.first);
        QCOMPARE(again->seen.counts.elements, uint64_t{400});
        QCOMPARE(again->seen.counts.nan, uint64_t{3});
        QCOMPARE(again->seen.counts.inf, uint64_t{2});
        QCOMPARE(again->seen.counts.zero, uint64_t{1});
        QCOMPARE(again->seen.negative, uint64_t{5});
        QCOMPARE(again->crc, segment.crc);
        QVERIFY(again->pieces == segment.pieces);
        for (size_t size = 0; size < bytes.size(); ++size)
            QVERIFY(!unpackSegment(std::string_view(bytes).substr(0, size)));
        QVERIFY(!unpackSegment(bytes + '\0'));
        // So many pieces that they cannot be there.
        QVERIFY(!unpackSegment(std::string("\0\0", 2) + "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"));
    }

    void expectations() {
        const auto opened = safetensorsFormat().open(sourceOf(kGenuine + "safetensors/hf-single/ckpt"), {});
        QVERIFY(opened.ok());
        CatalogBuilder builder("test", "", "");
        TensorInfo info;
        info.name = "model.embed_tokens.weight";
        info.dtype = DType::float16;
        info.shape = {10, 9};
        QVERIFY(builder.addTensor(info));
        info.name = "gone";
        QVERIFY(builder.addTensor(info));
        const Catalog expect = std::move(builder).finish();
        const ValidationReport report = validated(**opened, ValidateLevel::metadata, &expect);
        QCOMPARE(findRule(report, "expect.missing")->examples[0].tensor, std::string("gone"));
        QCOMPARE(findRule(report, "expect.shape")->count, 1u);
        QCOMPARE(findRule(report, "expect.dtype")->count, 1u);
        QCOMPARE(findRule(report, "expect.extra")->count, 4u);
        QVERIFY(!report.notChecked.empty());
        const ValidationReport same = validated(**opened, ValidateLevel::metadata, &(*opened)->catalog());
        QCOMPARE(static_cast<int>(same.verdict), static_cast<int>(Verdict::safe));
    }

    void oneFindingForAMissingFile() {
        auto system = std::make_shared<MemoryFileSystem>();
        QVERIFY(system->makeDirectory("/c"));
        std::string map;
        for (int i = 0; i < 300; ++i)
            map += (i ? "," : "") + std::string("\"t") + std::to_string(i) + "\":\"1.safetensors\"";
        const std::string json = "{\"weight_map\":{" + map + "}}";
        const auto* begin = reinterpret_cast<const std::byte*>(json.data());
        system->put("/c/model.safetensors.index.json", std::vector<std::byte>(begin, begin + json.size()));
        Source source;
        source.fileSystem = system;
        source.directory = system->openDirectory("/c").value();
        source.entries = source.directory->list().value();
        const auto opened = safetensorsFormat().open(source, {});
        QVERIFY2(opened.ok(), opened.ok() ? "" : describe(opened.error()).c_str());
        const ValidationReport report = validated(**opened, ValidateLevel::values);
        QCOMPARE(report.findings.size(), size_t{1});
        QCOMPARE(report.findings[0].rule, std::string("file.missing"));
        QCOMPARE(report.findings[0].count, 300u);
    }
};

QTEST_APPLESS_MAIN(ValidateTest)
#include "validate_test.moc"
