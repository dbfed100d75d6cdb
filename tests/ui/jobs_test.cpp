#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class JobsTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(JobsTest)
#include "jobs_test.moc"
