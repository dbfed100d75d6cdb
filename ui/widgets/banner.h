// A line across the top of a window that says what happened and offers what to do; nothing waits for an
// answer.
#pragma once

#include <QFrame>
#include <QString>
#include <functional>
#include <utility>
#include <vector>

class QLabel;
class QHBoxLayout;

namespace shardscope::ui {

enum class BannerKind { info, warning, error };

class Banner : public QFrame {
    Q_OBJECT
  public:
    using Action = std::pair<QString, std::function<void()>>;
    explicit Banner(QWidget* parent = nullptr);

    // Replaces what stands there. Info goes away by itself after some seconds when it offers nothing. `key`
    // names what it is about, for clear().
    void show(BannerKind kind, const QString& text, std::vector<Action> actions = {},
              const QString& key = {});
    // Hides it when it is about `key`, or whatever it shows when `key` is empty.
    void clear(const QString& key = {});
    QString text() const;
    BannerKind kind() const { return kind_; }

  protected:
    void paintEvent(QPaintEvent*) override;

  private:
    QLabel* icon_;
    QLabel* label_;
    QHBoxLayout* buttons_;
    BannerKind kind_ = BannerKind::info;
    QString key_;
    int generation_ = 0;
};

// In the banner of the window that holds `inside`; does nothing where there is none.
void showBanner(QWidget* inside, BannerKind kind, const QString& text,
                std::vector<Banner::Action> actions = {}, const QString& key = {});

}  // namespace shardscope::ui
