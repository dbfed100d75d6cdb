#include "ui/models/model_config.h"

#include <QCoreApplication>
#include <QFile>
#include <QFileInfo>
#include <QJsonDocument>
#include <QJsonObject>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

constexpr qint64 kLargestConfig = 4 << 20;
constexpr int64_t kMostHeads = 1 << 20;

// As Hugging Face's configurations call them, the newer names first.
constexpr const char* kHeads[] = {"num_attention_heads", "n_heads", "n_head", "num_heads"};
constexpr const char* kKeyValueHeads[] = {"num_key_value_heads", "n_kv_heads", "num_kv_heads",
                                          "multi_query_group_num"};

template <size_t N>
int64_t find(const QJsonObject& object, const char* const (&keys)[N], QString& said) {
    for (const char* key : keys) {
        const double value = object.value(QLatin1String(key)).toDouble(0);
        if (value < 1 || value > static_cast<double>(kMostHeads) || value != static_cast<int64_t>(value))
            continue;
        said = QString::fromLatin1(key);
        return static_cast<int64_t>(value);
    }
    return 0;
}

std::optional<HeadCounts> read(const QString& path) {
    QFile file(path);
    if (!QFileInfo(path).isFile() || file.size() > kLargestConfig || !file.open(QIODevice::ReadOnly))
        return std::nullopt;
    const QJsonObject all = QJsonDocument::fromJson(file.read(kLargestConfig)).object();
    // Models of several kinds of input have the sizes of the language model apart.
    for (const QJsonObject& object : {all, all.value(QLatin1String("text_config")).toObject()}) {
        HeadCounts counts;
        counts.heads = find(object, kHeads, counts.headsKey);
        counts.keyValueHeads = find(object, kKeyValueHeads, counts.keyValueKey);
        counts.file = path;
        if (counts.heads || counts.keyValueHeads) return counts;
    }
    return std::nullopt;
}

}  // namespace

std::optional<HeadCounts> headCounts(const std::string& checkpoint) {
    const QFileInfo info(QString::fromStdString(checkpoint));
    const QString directory = info.isDir() ? info.absoluteFilePath() : info.absolutePath();
    for (const QString& at : {directory, QFileInfo(directory).absolutePath()}) {
        if (auto counts = read(at + QStringLiteral("/config.json"))) return counts;
    }
    return std::nullopt;
}

QStringList headNotes(const HeadCounts& counts, const Mesh& mesh) {
    const auto tr = [](const char* text) { return QCoreApplication::translate("HeadCounts", text); };
    QStringList notes;
    for (const MeshAxis& axis : mesh.axes) {
        if (axis.name != "tp" && axis.name != "mp") continue;
        const int64_t size = axis.size;
        const QString over = QStringLiteral("%1=%2").arg(toQString(axis.name)).arg(size);
        if (counts.heads % size != 0) {
            notes += tr("%1 attention heads (%2 in config.json) cannot be divided over %3: a head would be "
                        "split, and frameworks refuse such a mesh.")
                         .arg(numberText(static_cast<uint64_t>(counts.heads)), counts.headsKey, over);
        }
        if (counts.keyValueHeads == counts.heads || counts.keyValueHeads % size == 0) continue;
        const QString heads = numberText(static_cast<uint64_t>(counts.keyValueHeads));
        if (size % counts.keyValueHeads == 0) {
            notes += tr("%1 key/value heads (%2 in config.json) are fewer than %3: heads would be split, "
                        "where frameworks give %4 ranks a copy of each.")
                         .arg(heads, counts.keyValueKey, over)
                         .arg(size / counts.keyValueHeads);
        } else {
            notes +=
                tr("%1 key/value heads (%2 in config.json) cannot be divided over %3: a head would be split.")
                    .arg(heads, counts.keyValueKey, over);
        }
    }
    return notes;
}

}  // namespace shardscope::ui
