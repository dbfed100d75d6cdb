// The wizard that converts, driven as a user does.
#pragma once

#include <QDir>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QTabWidget>
#include <QTableWidget>

#include "support/gui_test.h"
#include "ui/models/job_store.h"
#include "ui/pages/convert_wizard.h"

namespace shardscope::ui {

inline constexpr int kPatience = 120'000;  // milliseconds
enum Pages { intent, source, target, placement, names, workers, run, plan };

template <class T>
T* named(QWidget& widget, const char* name) {
    T* found = widget.findChild<T*>(QString::fromLatin1(name));
    if (!found) qFatal("there is no '%s'", name);
    return found;
}

inline QPushButton* buttonWith(QWidget& widget, const QString& text) {
    for (QPushButton* button : widget.findChildren<QPushButton*>()) {
        if (button->text() == text) return button;
    }
    qFatal("there is no button '%s'", qPrintable(text));
    return nullptr;
}

inline QString status(ConvertWizard& wizard) {
    return named<QLabel>(wizard, "wizardStatus")->text();
}

inline void waitUntilReady(ConvertWizard& wizard) {
    QTRY_VERIFY2_WITH_TIMEOUT(status(wizard).startsWith(QStringLiteral("✓")), qPrintable(status(wizard)),
                              kPatience);
}
inline void waitForPlan(ConvertWizard& wizard) {
    QTRY_VERIFY_WITH_TIMEOUT(!status(wizard).startsWith(QStringLiteral("…")), kPatience);
}

inline void type(QLineEdit* edit, const QString& text) {
    edit->setFocus();
    edit->selectAll();
    QTest::keyClicks(edit, text);
}

// Clicks on the tab that holds `inner`.
inline void showTabOf(ConvertWizard& wizard, QWidget* inner) {
    for (QTabWidget* tabs : wizard.findChildren<QTabWidget*>()) {
        for (int i = 0; i < tabs->count(); ++i) {
            if (tabs->widget(i)->isAncestorOf(inner))
                QTest::mouseClick(tabs->tabBar(), Qt::LeftButton, {}, tabs->tabBar()->tabRect(i).center());
        }
    }
    QTRY_VERIFY(inner->isVisible());
}

// Adds a rule the way a user does: Add, then the cells.
inline void addRule(QTableWidget* table, const QStringList& cells) {
    table->setFocus();
    QTest::keyClick(table, Qt::Key_Insert);
    const int row = table->rowCount() - 1;
    for (int c = 0; c < cells.size(); ++c) {
        table->setCurrentCell(row, c);
        if (!table->isPersistentEditorOpen(table->item(row, c)) &&
            table->indexWidget(table->currentIndex()) == nullptr)
            table->editItem(table->item(row, c));
        auto* editor = table->viewport()->findChild<QLineEdit*>();
        QVERIFY(editor);
        QTest::keyClicks(editor, cells[c]);
        QTest::keyClick(editor, Qt::Key_Return);
        QTRY_COMPARE(table->item(row, c)->text(), cells[c]);
    }
}

class WizardFixture : protected FreshDirectories {
  protected:
    // Shown at this page, with nothing chosen but where the result goes, and ready to start.
    void showReady(ConvertWizard& wizard, int page) {
        ConversionSpec spec;
        spec.destination = fresh() + "/out";
        wizard.setSpec(spec);
        wizard.show();
        wizard.showPage(page);
        waitUntilReady(wizard);
    }
    std::unique_ptr<JobStore> jobs() {
        auto store = std::make_unique<JobStore>(nullptr, fresh());
        store->setProgram(QStringLiteral(SHARDSCOPE_PROGRAM));
        return store;
    }
};

}  // namespace shardscope::ui
