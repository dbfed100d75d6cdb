// Engine values as text on screen. Names from files are untrusted: they are shown as plain text only, with
// control characters and bidirectional overrides made visible.
#pragma once

#include <QDateTime>
#include <QString>
#include <string_view>

#include "base/units.h"
#include "engine/ready.h"
#include "model/catalog.h"
#include "validate/validate.h"

namespace shardscope::ui {

QString toQString(std::string_view text);
// A message that every front end shows: its options are named as fields, “Sharded dimensions” for --tp-dim.
QString messageText(std::string_view message);
inline QString sizeText(uint64_t bytes) {
    return QString::fromStdString(bytesText(bytes));
}
inline QString numberText(uint64_t count) {
    return QString::fromStdString(countText(count));
}
inline QString timeText(double seconds) {
    return QString::fromStdString(durationText(seconds));
}
inline QString rangeText(uint64_t first, uint64_t length) {  // "1,024–2,048"
    return numberText(first) + u'–' + numberText(first + length);
}
QString ratioText(double share);  // "12.5 %"
// When something was: "2026-11-26 14:05", in the time of this machine.
QString momentText(const QDateTime& time);
QString agoText(const QDateTime& time);  // "20 min ago"; a moment of another day by its date
// Words that no line of a label can be broken at are cut in their middle: "'model.layers…weight' is missing".
QString shortWords(const QString& text);
// `one` for 1, else `many` with %1 as the number: "1 tensor", "2,304 tensors".
QString countedText(uint64_t count, const QString& one, const QString& many);

QString notCheckedText(const ValidationReport& report);  // "values; names"; empty where all was checked
QString levelText(ValidateLevel level);                  // "Files and headers"

// Glyphs of verdicts and messages, the same everywhere and not in any emoji font: ✓ good, ▲ care, ✕ bad, •
// information.
QString verdictText(Verdict verdict);      // "✓ whole"
QString verdictHeadline(Verdict verdict);  // "✓ Whole"
// What a resume card answers: its words as a sentence, and how it is marked and colored.
struct CardAnswer {
    Verdict tone = Verdict::safe;
    QString mark, words;  // "✕", "Do not resume: 'optimizer.pt' is missing"
};
CardAnswer answerOf(const ReadyCard& card);
QString readyGlyph(ReadyMark mark);

// Python that loads one tensor of this checkpoint with its own framework, on the host that it is on;
// `directory` holds its files.
QString pythonSnippet(const QString& checkpoint, const QString& directory, const Catalog& catalog,
                      TensorId tensor);

// A cell of a CSV table, quoted where it needs to be.
QString csvField(QString text);

// A word for a shell: quoted where it needs to be.
QString shellQuoted(const QString& word);
QString shellLine(const QStringList& words);

}  // namespace shardscope::ui
