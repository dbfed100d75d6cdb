#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class FilesTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(FilesTest)
#include "files_test.moc"
