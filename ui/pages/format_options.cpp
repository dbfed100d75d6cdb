#include "ui/pages/format_options.h"

#include <QGridLayout>
#include <QLabel>
#include <algorithm>

#include "ui/models/texts.h"
#include "ui/pages/wizard_parts.h"

namespace shardscope::ui {

namespace {

// Values as SourceOptions::split() reads them back.
QString asLine(const QStringList& values) {
    QStringList words;
    for (QString value : values) {
        value.replace('"', QStringLiteral("\"\"\""));
        words += value.contains(' ') ? '"' + value + '"' : value;
    }
    return words.join(' ');
}

}  // namespace

FormatOptions::FormatOptions(QWidget* parent) : QWidget(parent) {
    auto* grid = new FormGrid;
    grid->setContentsMargins(0, 0, 0, 0);
    for (const FormatOption& option : formatOptions()) {
        Field field{option, {}, nullptr, false};
        QWidget* widget = nullptr;
        if (option.choices.empty()) {
            auto* edit = new QLineEdit(this);
            edit->setPlaceholderText(toQString(option.example));
            connect(edit, &QLineEdit::textEdited, this, &FormatOptions::edited);
            field.widget = edit;
            widget = edit;
        } else {
            auto* box = new QComboBox(this);
            box->addItem(toQString(option.unset), QString());
            for (const auto& [value, meaning] : option.choices)
                box->addItem(toQString(meaning), toQString(value));
            connect(box, &QComboBox::activated, this, &FormatOptions::edited);
            field.widget = box;
            widget = box;
        }
        widget->setObjectName(toQString(option.name));
        widget->setAccessibleName(toQString(option.title));
        widget->setToolTip(
            tr("%1 (%2 on the command line)").arg(toQString(option.help), toQString(option.name)) +
            (option.repeats ? tr("; separate several by spaces") : QString()));
        grid->add(toQString(option.title) + ':', widget);
        field.label = grid->itemAtPosition(grid->rowCount() - 1, 0)->widget();
        fields_.push_back(std::move(field));
    }
    setLayout(grid);
    if (!fields_.empty()) std::visit([this](auto* widget) { setFocusProxy(widget); }, fields_[0].widget);
}

void FormatOptions::offer(const std::vector<FormatOption>& options) {
    for (Field& field : fields_) {
        field.shown = std::ranges::count(options, field.option.name, &FormatOption::name) > 0;
        field.label->setVisible(field.shown);
        std::visit([&](auto* widget) { widget->setVisible(field.shown); }, field.widget);
    }
    setVisible(!options.empty());
}

void FormatOptions::setOptions(const SourceOptions& options) {
    for (const Field& field : fields_) {
        const QStringList values = options.valuesOf(toQString(field.option.name));
        if (const auto* edit = std::get_if<QLineEdit*>(&field.widget)) {
            if (SourceOptions::split((*edit)->text()) != values) (*edit)->setText(asLine(values));
        } else {
            auto* box = std::get<QComboBox*>(field.widget);
            box->setCurrentIndex(std::max(0, box->findData(values.value(0))));
        }
    }
}

void FormatOptions::take(SourceOptions& options) const {
    options.own.clear();
    for (const Field& field : fields_) {
        if (!field.shown) continue;
        QStringList values;
        if (const auto* edit = std::get_if<QLineEdit*>(&field.widget)) {
            values = SourceOptions::split((*edit)->text());
        } else {
            values << std::get<QComboBox*>(field.widget)->currentData().toString();
        }
        for (const QString& value : values) {
            if (!value.isEmpty()) options.own.append({toQString(field.option.name), value});
        }
    }
}

}  // namespace shardscope::ui
