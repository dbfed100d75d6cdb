// Small genuine files, cut after every byte and with many bytes flipped, through the engine: never more than
// an error, and of what is cut always one.
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "cli/genuine_checks.h"
#include "cli/measured_process.h"
#include "engine/engine.h"

using namespace shardscope;
using namespace shardscope::test;

namespace {

// Opens a checkpoint and asks for everything that a reader can be asked for without reading data. What is
// only noted, because other files are whole, counts as an error too.
Status exercise(const std::string& path) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, openCheckpoint(path));
    Status first;
    const Catalog& catalog = checkpoint.catalog();
    for (const Note& note : catalog.notes()) {
        if (note.severity != Severity::info && first.ok()) first = damaged(note.message).inFile(note.file);
    }
    for (ChunkId chunk = 0; chunk < catalog.chunkCount(); ++chunk) {
        const auto extent = checkpoint.reader->locate(chunk);
        if (!extent.ok() && first.ok()) first = extent.error();
    }
    for (ObjectId object = 0; object < catalog.objects().size(); ++object) {
        const auto value = checkpoint.reader->objectValue(object);
        if (!value.ok() && first.ok()) first = value.error();
    }
    return first;
}

}  // namespace

class DamagedFileTest : public QObject {
    Q_OBJECT

  private slots:
    void everyByte_data() {
        QTest::addColumn<QString>("directory");
        QTest::addColumn<QString>("file");
        QTest::addColumn<QString>("open");
        QTest::addColumn<int>("step");  // between the bytes that are tried
        const auto add = [](const char* id, const char* directory, const char* file, const char* open,
                            int step = 1) {
            QTest::newRow(id) << QStringLiteral(SHARDSCOPE_TEST_DATA "/genuine/%1/ckpt").arg(directory)
                              << QString(file) << QString(open) << step;
        };
        add("metadata", "dcp/t2.6.0-no-dist", ".metadata", "");
        add("metadata of torch 2.15", "dcp/t2.15.0-no-dist", ".metadata", "");
        add("zip", "torch_save/t2.6.0-tied", "model.pt", "model.pt");
        add("legacy", "torch_save/t2.15.0-legacy", "legacy.pth", "legacy.pth");
        add("safetensors", "safetensors/shapes", "model.safetensors", "model.safetensors");
        add("index", "safetensors/hf-sharded", "model.safetensors.index.json",
            "model.safetensors.index.json");
        // One file of many, all of which are opened.
        constexpr int some = 11;
        add("file of a rank", "torch_ranks/t2.15.0-fsdp2-w4-few-rows", "rank1.pt", "", some);
        add("states of DeepSpeed's model", "deepspeed/z3_fp32_w4_tiny",
            "global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt", "global_step3", some);
        add("states of DeepSpeed's optimizer", "deepspeed/z3_fp32_w4_tiny",
            "global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt", "global_step3", some);
        add("metadata of torch_checkpointing", "torch_checkpointing/world1-mixed", "metadata.pkl", "", some);
        add("manifest of OCDBT", "orbax/o0.12.8-key-dots-slashes", "manifest.ocdbt", "");
        add("tree of OCDBT", "orbax/o0.12.8-key-dots-slashes", "d/f99b71a645b9a960e884a085799ca3e0", "");
        add("tree of Flax", "orbax/o0.2.7-flax-legacy-msgpack", "checkpoint_7", "checkpoint_7");
    }
    void everyByte() {
        QFETCH(QString, directory);
        QFETCH(QString, file);
        QFETCH(QString, open);
        QFETCH(int, step);
        if (kSanitized) step *= 7;  // all of them take a quarter of an hour then
        QTemporaryDir copy;
        copyTree(directory, copy.path());
        QFile victim(copy.filePath(file));
        QVERIFY(victim.open(QIODevice::ReadWrite | QIODevice::Unbuffered));
        QByteArray bytes = victim.readAll();
        const std::string path = copy.filePath(open).toStdString();
        QVERIFY2(exercise(path).ok(), "the genuine file opens");

        // Every truncation is an error that says where.
        for (qsizetype size = bytes.size() - 1; size >= 0; size -= step) {
            QVERIFY(victim.resize(size));
            const Status status = exercise(path);
            QVERIFY2(
                !status.ok(),
                qPrintable(QStringLiteral("cut to %1 of %2 bytes it passes").arg(size).arg(bytes.size())));
            const Error& error = status.error();
            const std::string said = describe(error);
            QVERIFY2(
                error.code == ErrorCode::damaged || error.code == ErrorCode::unsupported ||
                    error.code == ErrorCode::notFound,
                (std::to_string(size) + ": " + std::string(errorCodeName(error.code)) + ": " + said).c_str());
            QVERIFY2(!error.location.file.empty() && !error.message.empty(), said.c_str());
        }
        // A changed byte may be harmless, but never more than an error.
        QVERIFY(victim.seek(0) && victim.write(bytes) == bytes.size());
        for (qsizetype at = 0; at < bytes.size(); at += step) {
            for (const int mask : {0x01, 0x80, 0xff}) {
                const char changed = static_cast<char>(bytes[at] ^ mask);
                QVERIFY(victim.seek(at) && victim.write(&changed, 1) == 1);
                const Status status = exercise(path);
                if (!status.ok())
                    QVERIFY2(
                        status.error().code != ErrorCode::internal && status.error().code != ErrorCode::io,
                        describe(status.error()).c_str());
            }
            QVERIFY(victim.seek(at) && victim.write(bytes.constData() + at, 1) == 1);
        }
        QVERIFY(exercise(path).ok());
    }
};

QTEST_GUILESS_MAIN(DamagedFileTest)
#include "damaged_file_test.moc"
