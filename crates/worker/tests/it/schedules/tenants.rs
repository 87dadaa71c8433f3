//! Schedules of several tenants on one scheduler.

use waypost_kernel::lifecycle::SHIPPED;
use waypost_store::Who;

use super::stage::Stage;

fn like(shipped: &str, name: &str) -> String {
    let (_, source) = SHIPPED.iter().find(|(known, _)| *known == shipped).unwrap();
    source.replacen(&format!("\"{shipped}\""), &format!("\"{name}\""), 1)
}

// proves U14
#[tokio::test]
async fn tenants_schedules_are_fired_alike_and_each_as_its_tenants() {
    let stage = Stage::new();
    // Names that stand before the installation's: executions are of its `cron` all the same.
    for source in [like("cron", "cron").replacen("version = 1", "version = 7", 1), like("deploy", "release")]
    {
        stage.store.add_lifecycle(source, Who::new("shop", "tests", None)).await.unwrap();
    }
    let exec = "cadence = \"1m\"\nexec = [\"sh\", \"-c\", \"echo $WAYPOST_TENANT >> seen\"]";
    let lifecycles = stage.store.lifecycles().await.unwrap();
    for tenant in ["shop", "bank", "default"] {
        stage.apply_as("job", exec, &lifecycles.of_tenant(tenant)).await;
    }
    let queues = "cadence = \"1m\"\nrun = { lifecycle = \"release\", exec = [\"true\"] }";
    stage.apply_as("queues", queues, &lifecycles.of_tenant("shop")).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let mut seen: Vec<String> = std::fs::read_to_string(stage.folder.path().join("seen"))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ["bank", "default", "shop"]);
    for (schedule, tenant, lifecycle) in [
        ("shop/job", "shop", "cron"),
        ("bank/job", "bank", "cron"),
        ("job", "default", "cron"),
        ("shop/queues", "shop", "shop/release"),
    ] {
        let executions = stage.executions_of(schedule).await;
        let run = executions[0].run.as_ref().unwrap();
        assert_eq!(
            (run.tenant.as_str(), &*run.lifecycle.name, run.lifecycle.version),
            (tenant, lifecycle, 1)
        );
    }
}
