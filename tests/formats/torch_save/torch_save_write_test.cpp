// What is written is read again, with the same names, nesting, bytes and shared storages.
#include <QtTest>
#include <algorithm>
#include <map>

#include "encoding/torch_tensor.h"
#include "extent_bytes.h"
#include "formats/torch_save/torch_save.h"
#include "storage/digest.h"
#include "support/genuine.h"
#include "support/memory_file_system.h"
#include "support/write_layout.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

// The catalog as wanted: whole tensors, without places.
Catalog wantedFrom(const Reader& reader, const std::map<std::string, std::string>& without) {
    const Catalog& from = reader.catalog();
    CatalogBuilder builder("torch", "", "");
    for (TensorId t = 0; t < from.tensorCount(); ++t) {
        TensorInfo info;
        info.name = from.name(t);
        info.path = from.path(t);
        info.dtype = from.dtype(t);
        info.shape.assign(from.shape(t).begin(), from.shape(t).end());
        info.aliasOf = from.aliasOf(t);
        if (!builder.addTensor(info).ok() || !builder.addWhole(0, kNone, 0, 0).ok()) qFatal("wanted catalog");
    }
    for (ObjectInfo object : from.objects()) {
        if (!without.contains(object.name)) builder.addObject(std::move(object));
    }
    return std::move(builder).finish();
}

}  // namespace

class TorchSaveWriteTest : public QObject {
    Q_OBJECT

  private slots:
    void roundTrip_data() {
        QTest::addColumn<int>("index");
        const auto cases = genuineCases("torch_save");
        for (size_t i = 0; i < cases.size(); ++i)
            QTest::newRow(cases[i].name.c_str()) << static_cast<int>(i);
    }
    void roundTrip() {
        QFETCH(int, index);
        static const auto cases = genuineCases("torch_save");
        const auto opened =
            torchSaveFormat().open(sourceOf(cases[static_cast<size_t>(index)].openPath()), {});
        QVERIFY(opened.ok());
        const Reader& reader = **opened;

        std::map<std::string, std::string> without;
        for (const LeftOut& left : torchSaveFormat().cannotHold(wantedFrom(reader, {}), {})) {
            QVERIFY2(!left.why.empty(), left.name.c_str());
            QVERIFY2(reader.catalog().find(left.name) == kNone || left.name.empty(), left.name.c_str());
            without[left.name] = left.why;
        }
        const Catalog target = wantedFrom(reader, without);
        WriteOptions options;
        options.archiveName = "out";
        auto layout = torchSaveFormat().layout(target, options);
        QVERIFY2(layout.ok(), layout.ok() ? "" : describe(layout.error()).c_str());

        const auto fs = std::make_shared<MemoryFileSystem>();
        QVERIFY(fs->makeDirectory("/out").ok());
        const auto directory = fs->openDirectory("/out").value();
        const Status written = writeLayout(target, **layout, *directory, [&](TensorId t, const ChunkInfo&) {
            return readChunk(reader, t, reader.catalog().firstChunk(t)).value();
        });
        QVERIFY2(written.ok(), written.ok() ? "" : describe(written.error()).c_str());
        if (const QByteArray keep = qgetenv("SHARDSCOPE_KEEP"); !keep.isEmpty()) {
            const auto bytes = fs->get("/out/" + (*layout)->files[0].path);
            QFile file(QString::fromUtf8(keep) + "/" +
                       QString::fromStdString(cases[static_cast<size_t>(index)].name) + ".pt");
            QVERIFY(file.open(QIODevice::WriteOnly));
            file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<qint64>(bytes.size()));
        }

        Source source;
        source.fileSystem = fs;
        source.directory = directory;
        source.entry = (*layout)->files[0].path;
        const auto again = torchSaveFormat().open(source, {});
        QVERIFY2(again.ok(), again.ok() ? "" : describe(again.error()).c_str());
        const Catalog& a = reader.catalog();
        const Catalog& b = (*again)->catalog();
        QCOMPARE(b.tensorCount(), a.tensorCount());
        QCOMPARE(b.objects().size(), target.objects().size());
        for (TensorId t = 0; t < a.tensorCount(); ++t) {
            const TensorId u = b.find(a.name(t));
            QVERIFY2(u != kNone, std::string(a.name(t)).c_str());
            QCOMPARE(static_cast<int>(b.dtype(u)), static_cast<int>(a.dtype(t)));
            QVERIFY(readChunk(**again, u, b.firstChunk(u)).value() ==
                    readChunk(reader, t, a.firstChunk(t)).value());
            QCOMPARE(b.aliasOf(u) == kNone, a.aliasOf(t) == kNone);
            const Path path = a.path(t);
            const bool attributes = std::any_of(path.begin(), path.end(), [](const PathPart& part) {
                return part.kind == PathPart::Kind::attribute;
            });
            if (!attributes) QVERIFY2(b.path(u) == path, std::string(a.name(t)).c_str());
            const auto extent = (*again)->locate(b.firstChunk(u));
            QVERIFY(extent.ok() && extent->offset % 64 == 0 && extent->strides.empty());
            if (extent->length > 0) {
                QVERIFY(extent->checksum.has_value());
                QCOMPARE(extent->checksum->crc32, crc32Of(readChunk(**again, u, b.firstChunk(u)).value()));
            }
        }
        for (const ObjectInfo& object : b.objects()) {
            bool found = false;
            for (const ObjectInfo& before : target.objects()) {
                if (before.name != object.name) continue;
                found = true;
                QCOMPARE(valueToJson(object.value), valueToJson(before.value));
            }
            QVERIFY2(found, object.name.c_str());
        }
    }

    void collisions() {
        CatalogBuilder builder("torch", "", "");
        for (const Path& path : {Path{keyPart("a")}, Path{keyPart("a"), keyPart("b")}}) {
            TensorInfo info;
            info.name = pathName(path);
            info.path = path;
            info.shape = {1};
            QVERIFY(builder.addTensor(info).ok() && builder.addWhole(0, kNone, 0, 0).ok());
        }
        const Catalog target = std::move(builder).finish();
        const auto left = torchSaveFormat().cannotHold(target, {});
        QCOMPARE(left.size(), size_t{1});
        QCOMPARE(left[0].name, std::string("a.b"));
        QCOMPARE(static_cast<int>(torchSaveFormat().layout(target, {}).error().code),
                 static_cast<int>(ErrorCode::impossible));
    }
};

QTEST_GUILESS_MAIN(TorchSaveWriteTest)
#include "torch_save_write_test.moc"
