#include "ui/models/texts.h"

#include <QCoreApplication>
#include <QRegularExpression>
#include <QStringList>
#include <algorithm>

#include "base/text.h"
#include "engine/report.h"
#include "engine/request.h"
#include "ui/bridge/hosts.h"

namespace shardscope::ui {

QString toQString(std::string_view text) {
    return QString::fromStdString(printable(text));
}

QString messageText(std::string_view message) {
    static const QRegularExpression option(QStringLiteral("(?<![^ (])--([a-z][a-z-]+)"));
    QString text = toQString(message);
    for (auto match = option.match(text); match.hasMatch();
         match = option.match(text, match.capturedStart() + 1))
        text.replace(match.capturedStart(), match.capturedLength(),
                     toQString(titledOption(match.captured(1).toStdString(), {})));
    return text;
}

QString ratioText(double share) {
    const double percent = share * 100;
    if (percent > 0 && percent < 0.05) return QStringLiteral("<0.1 %");  // a little is not nothing
    // Nearly all is not all.
    const bool fine = (percent > 0 && percent < 10) || (percent > 99 && percent < 100);
    return QStringLiteral("%1 %").arg(percent, 0, 'f', fine ? 1 : 0);
}

QString momentText(const QDateTime& time) {
    return time.toLocalTime().toString(QStringLiteral("yyyy-MM-dd HH:mm"));
}

QString agoText(const QDateTime& time) {
    const qint64 minutes = time.secsTo(QDateTime::currentDateTime()) / 60;
    if (minutes < 0 || minutes >= 24 * 60) return momentText(time);
    if (minutes == 0) return QCoreApplication::translate("Texts", "just now");
    return minutes < 60 ? QCoreApplication::translate("Texts", "%1 min ago").arg(minutes)
                        : QCoreApplication::translate("Texts", "%1 h ago").arg(minutes / 60);
}

QString shortWords(const QString& text) {
    constexpr qsizetype kMost = 48, kEnd = 22;
    QStringList words = text.split(' ');
    for (QString& word : words)
        if (word.size() > kMost) word = word.left(kEnd) + u'…' + word.right(kEnd);
    return words.join(' ');
}

QString levelText(ValidateLevel level) {
    constexpr const char* texts[] = {"Metadata only", "Files and headers", "Every value"};
    return QCoreApplication::translate("Texts", texts[static_cast<int>(level)]);
}

QString notCheckedText(const ValidationReport& report) {
    QStringList list;
    for (const NotChecked& each : report.notChecked)
        list += toQString(each.what);
    return list.join(QStringLiteral("; "));
}

namespace {
QString verdictGlyph(Verdict verdict) {
    constexpr const char* glyphs[] = {"✓", "▲", "✕"};
    return QString::fromUtf8(glyphs[static_cast<int>(verdict)]);
}
}  // namespace

QString verdictHeadline(Verdict verdict) {
    return verdictGlyph(verdict) + ' ' + QCoreApplication::translate("Verdict", verdictSentence(verdict));
}

CardAnswer answerOf(const ReadyCard& card) {
    CardAnswer answer{card.words.starts_with("do not") ? Verdict::unsafe : card.verdict, {}, {}};
    answer.mark = verdictGlyph(answer.tone);
    answer.words = toQString(card.words);
    if (!answer.words.isEmpty()) answer.words[0] = answer.words[0].toUpper();
    return answer;
}

QString readyGlyph(ReadyMark mark) {
    constexpr const char* glyphs[] = {"✓", "✕", "–"};
    return QString::fromUtf8(glyphs[static_cast<int>(mark)]);
}

QString verdictText(Verdict verdict) {
    QString text = verdictHeadline(verdict);
    text[2] = text[2].toLower();  // behind the mark
    return text;
}

QString countedText(uint64_t count, const QString& one, const QString& many) {
    return count == 1 ? one : many.arg(numberText(count));
}

QString pythonSnippet(const QString& checkpoint, const QString& directory, const Catalog& catalog,
                      TensorId t) {
    if (const QString host = hostOf(checkpoint); !host.isEmpty())
        return QStringLiteral("# on %1\n").arg(host) +
               pythonSnippet(pathThere(checkpoint), pathThere(directory), catalog, t);
    const auto literal = [](QString text) {
        return "'" + text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n") + "'";
    };
    const QString name =
        literal(QString::fromUtf8(catalog.name(t).data(), static_cast<qsizetype>(catalog.name(t).size())));
    const QString path = literal(checkpoint);
    if (catalog.format() == "safetensors") {
        const ChunkId c = catalog.firstChunk(t);
        const QString file =
            c < catalog.endChunk(t) && catalog.chunk(t, c).file != kNone
                ? literal(directory + '/' + toQString(catalog.files()[catalog.chunk(t, c).file].path))
                : path;
        return QStringLiteral(
                   "from safetensors import safe_open\n"
                   "with safe_open(%1, framework='pt') as f:\n"
                   "    tensor = f.get_tensor(%2)\n")
            .arg(file, name);
    }
    if (catalog.format() == "dcp") {
        QStringList shape;
        for (const int64_t d : catalog.shape(t))
            shape += QString::number(d);
        return QStringLiteral(
                   "import torch, torch.distributed.checkpoint as dcp\n"
                   "state = {%2: torch.empty([%3], dtype=torch.%4)}\n"
                   "dcp.load(state, checkpoint_id=%1)\n"
                   "tensor = state[%2]\n")
            .arg(path, name, shape.join(", "), toQString(dtypeName(catalog.dtype(t))));
    }
    // Keys of other kinds stand as Python prints them. Only numbers, tuples of numbers and constants are put
    // into code; whatever else a file calls a key does not become a part of it.
    static const QRegularExpression plainKey(QStringLiteral("^(True|False|None|\\(?[-+0-9.eE, ]+\\)?)$"));
    const Path parts = catalog.path(t);
    const bool spelled = std::all_of(parts.begin(), parts.end(), [&](const PathPart& part) {
        static const QRegularExpression identifier(QStringLiteral("^[A-Za-z_][A-Za-z0-9_]*$"));
        if (part.kind == PathPart::Kind::otherKey) return plainKey.match(toQString(part.text)).hasMatch();
        return part.kind != PathPart::Kind::attribute || identifier.match(toQString(part.text)).hasMatch();
    });
    if (catalog.format() == "torch" && spelled) {
        QString access;
        for (const PathPart& part : parts) {
            switch (part.kind) {
                case PathPart::Kind::key:
                    access += "[" + literal(toQString(part.text)) + "]";
                    break;
                case PathPart::Kind::otherKey:
                    access += "[" + toQString(part.text) + "]";
                    break;
                case PathPart::Kind::attribute:
                    access += "." + toQString(part.text);
                    break;
                default:
                    access += QStringLiteral("[%1]").arg(part.index);
            }
        }
        return QStringLiteral(
                   "import torch\n"
                   "tensor = torch.load(%1, map_location='cpu', mmap=True, weights_only=True)%2\n")
            .arg(path, access);
    }
    return QStringLiteral(
               "# shardscope extract %1 %2 tensor.npy\n"
               "import numpy\n"
               "tensor = numpy.load('tensor.npy')\n")
        // A comment ends with its line, so no name may bring a line of its own.
        .arg(shellQuoted(toQString(checkpoint.toStdString())), shellQuoted(toQString(catalog.name(t))));
}

QString csvField(QString text) {
    if (!text.contains(',') && !text.contains('"') && !text.contains('\n')) return text;
    return '"' + text.replace('"', "\"\"") + '"';
}

QString shellQuoted(const QString& word) {
    static const QRegularExpression plain(QStringLiteral("^[A-Za-z0-9_@%+=:,./-]+$"));
    if (plain.match(word).hasMatch()) return word;
    QString inner = word;
    return "'" + inner.replace('\'', "'\\''") + "'";
}

QString shellLine(const QStringList& words) {
    QStringList quoted;
    for (const QString& word : words)
        quoted += shellQuoted(word);
    return quoted.join(' ');
}

}  // namespace shardscope::ui
