// Jobs in parts: each part is a process of its own. The source has some tensors of 40 MiB together.
#pragma once

#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <map>
#include <memory>

#include "cli/genuine_checks.h"

namespace shardscope::test {

inline constexpr int kParts = 4;

// The bytes of all files below a directory, by name.
inline std::map<QString, QByteArray> bytesBelow(const QString& path) {
    std::map<QString, QByteArray> all;
    QDirIterator files(path, QDir::Files | QDir::Hidden, QDirIterator::Subdirectories);
    while (files.hasNext()) {
        QFile file(files.next());
        if (!file.open(QIODevice::ReadOnly)) qFatal("cannot open %s", qPrintable(file.fileName()));
        all[QDir(path).relativeFilePath(file.fileName())] = file.readAll();
    }
    return all;
}

// A safetensors file of some float32 tensors, of 40 MiB together.
inline void writeSource(const QString& path) {
    constexpr int kTensors = 24;
    nlohmann::ordered_json header;
    uint64_t at = 0;
    for (int i = 0; i < kTensors; ++i) {
        // One is larger than the share of a part, some are small.
        const uint64_t rows = i == 5 ? 6000 : 16 * static_cast<uint64_t>(i);
        const uint64_t bytes = rows * 1024 * 4;
        header["layers." + std::to_string(i) + ".weight"] = {
            {"dtype", "F32"}, {"shape", {rows, 1024}}, {"data_offsets", {at, at + bytes}}};
        at += bytes;
    }
    const std::string text = header.dump();
    const auto length = static_cast<uint64_t>(text.size());
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly)) qFatal("cannot write %s", qPrintable(path));
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file.write(text.data(), static_cast<qint64>(text.size()));
    std::vector<float> row(1024);
    for (uint64_t value = 0; value < at / 4; value += row.size()) {
        for (size_t i = 0; i < row.size(); ++i)
            row[i] = static_cast<float>((value + i) % 8191);
        file.write(reinterpret_cast<const char*>(row.data()), static_cast<qint64>(row.size() * 4));
    }
}

class PartsFixture {
  protected:
    QTemporaryDir sources_;
    QString source_;
    QString findings_;
    std::unique_ptr<QTemporaryDir> place_;

    QString target(const QString& name = "out") const { return place_->filePath(name); }
    QString staging() const { return place_->filePath(".out.shardscope-partial"); }
    QStringList words(const QStringList& more, const QString& name = "out") const {
        return QStringList{"convert", source_, target(name), "--to",   "dcp",
                           "--mesh",  "tp=3",  "--shard",    "*:tp=0", "--json"} +
               more;
    }
    static QString part(int index, int count = kParts) {
        return QStringLiteral("%1/%2").arg(index).arg(count);
    }
    Outcome run(const QStringList& more) const { return runShardscope(words(more)); }
    QString records() const { return place_->filePath("records"); }
    QStringList readingWords(const QString& path, const QStringList& what, const QStringList& more) const {
        QStringList words{what.front(), path, "--json"};
        words += what.mid(1);
        if (!more.isEmpty()) words += QStringList{"--records", records()} + more;
        return words;
    }
    Outcome reading(const QString& path, const QStringList& what, const QStringList& more) const {
        return runShardscope(readingWords(path, what, more));
    }
    void makeSources() {
        source_ = sources_.filePath("source.safetensors");
        writeSource(source_);
        writeFindings();
    }
    // The source as a torch.save file, one storage of which is damaged behind its first tile, with NaN and
    // zeros in tensors that parts share.
    void writeFindings() {
        findings_ = sources_.filePath("findings.pt");
        if (runShardscope({"convert", source_, findings_, "--to", "torch"}).exitCode != 0)
            qFatal("cannot convert");
        QFile file(findings_);
        if (!file.open(QIODevice::ReadWrite)) qFatal("cannot open %s", qPrintable(findings_));
        const QByteArray nan = QByteArray::fromHex("0000c07f");
        for (const qint64 at : {2, 9, 17, 30, 40}) {
            if (!file.seek((at << 20) + 4096)) qFatal("cannot seek");
            file.write(nan.repeated(1000));
        }
        file.seek(36 << 20);
        file.write(QByteArray(2 << 20, '\0'));
    }
    void sealAll() {
        for (const int index : {1, 3, 0, 2}) {
            const Outcome done = run({"--part", part(index), "--finish", "seal"});
            QCOMPARE(done.exitCode, 0);
            QVERIFY(!done.json()["read_back"].get<bool>());
        }
        QVERIFY(!QFile::exists(target()));
        QVERIFY(QFile::exists(staging() + "/sealed"));
    }
    // What one process writes.
    const std::map<QString, QByteArray>& whole() {
        if (!whole_.empty()) return whole_;
        QStringList alone = words({});
        alone[2] = sources_.filePath("plain");
        const Outcome plain = runShardscope(alone);
        if (plain.exitCode != 0) qFatal("%s", plain.err.c_str());
        return whole_ = bytesBelow(alone[2]);
    }

  private:
    std::map<QString, QByteArray> whole_;
};

}  // namespace shardscope::test
