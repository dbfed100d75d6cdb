// Small parts that the pages of the wizard are made of.
#pragma once

#include <QFrame>
#include <QGridLayout>
#include <QTableWidget>
#include <QWidget>
#include <vector>

class QLabel;
class QLayout;
class QLineEdit;
class QPushButton;

namespace shardscope::ui {

// A text that wraps, never rich, selectable.
QLabel* wizardText(const QString& text, QWidget* parent);
// The same in the faint color of explanations.
QLabel* wizardHint(const QString& text, QWidget* parent);
QLabel* wizardHeading(const QString& text, QWidget* parent);

// Labels and fields in two columns, with room for texts that wrap (which QFormLayout makes too high). A
// label's mnemonic leads to its field.
class FormGrid : public QGridLayout {
  public:
    FormGrid();
    void add(const QString& label, QWidget* field);
    void add(const QString& label, QLayout* field, QWidget* buddy);

  private:
    void addLabel(const QString& text, QWidget* buddy);
};

// A path with a Browse button. The dialog does not block.
class PathEdit : public QWidget {
    Q_OBJECT
  public:
    enum class Kind { saveAny, openFile, openDirectory, saveFile, address };  // the last: typed, not chosen
    PathEdit(Kind kind, const QString& name, const QString& filter, QWidget* parent);

    QString path() const;
    void setPath(const QString& path);
    QLineEdit* edit() { return edit_; }

  signals:
    void edited(const QString& path);

  private:
    void browse();
    Kind kind_;
    QString name_, filter_;
    QLineEdit* edit_;
};

// Rules as rows whose order counts: edited in place, added, removed and moved by buttons and keys (Insert,
// Delete, Alt+Up, Alt+Down). The last column may be written by the program alone.
class RuleTable : public QWidget {
    Q_OBJECT
  public:
    // `examples` stand as gray text in the cells of a new rule's tool tips.
    RuleTable(const QString& name, const QStringList& columns, const QStringList& examples, bool resultColumn,
              QWidget* parent);

    std::vector<QStringList> rules() const;  // rows whose first cell is not empty, without the result column
    void setRules(const std::vector<QStringList>& rules);
    void setResult(int rule, const QString& text);  // by place among rules()
    QTableWidget* table() { return table_; }
    void hideOrder();  // where it means nothing

  public slots:
    void add();
    void removeCurrent();
    void move(int by);

  signals:
    void edited();

  private:
    void appendRow(const QStringList& cells);
    void syncButtons();
    QTableWidget* table_;
    int inputs_;
    bool resultColumn_;
    QStringList examples_;
    QPushButton *remove_, *up_, *down_;
};

}  // namespace shardscope::ui
