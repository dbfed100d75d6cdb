#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class WindowTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(WindowTest)
#include "window_test.moc"
