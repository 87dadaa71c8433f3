//! Lifecycles of tenants: whose a name is, and what is kept of a file.

use waypost_kernel::Catalog;
use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::render::toml::toml;

use crate::examples::RELEASE;

fn shipped(name: &str) -> &'static str {
    SHIPPED.iter().find(|(known, _)| *known == name).unwrap().1
}

/// Adds a file to a tenant's own, as a database does: what is kept is read again by everybody.
fn add(catalog: &mut Catalog, tenant: &str, text: &str) -> String {
    let added = catalog.of_tenant(tenant).add(text).unwrap();
    let kept = catalog.add_stored(&toml(&added)).unwrap();
    assert_eq!(kept, added, "{}", toml(&added));
    added.name.to_string()
}

// proves U14
#[test]
fn two_tenants_have_lifecycles_of_one_name_and_version() {
    let mut catalog = Catalog::shipped().unwrap();
    let other = RELEASE.replacen("lease = \"90s\"", "lease = \"80s\"", 1);
    assert_eq!(add(&mut catalog, "shop", RELEASE), "shop/release");
    assert_eq!(add(&mut catalog, "bank", &other), "bank/release");
    let (shop, bank) = (catalog.of_tenant("shop"), catalog.of_tenant("bank"));
    assert_eq!(&*shop.latest("release").unwrap().name, "shop/release");
    assert_eq!(shop.get("release", 1), shop.get("shop/release", 1), "by the stored name too");
    assert_ne!(shop.latest("release"), bank.latest("release"));
    for foreign in ["bank/release", "/release"] {
        assert_eq!(shop.latest(foreign), None, "{foreign}");
    }
    assert!(catalog.of_tenant("default").latest("release").is_none(), "nobody else has one");
    assert!(shop.iter().all(|it| !it.name.starts_with("bank/")), "nor sees it");
}

#[test]
fn a_tenants_own_stands_before_the_installations_and_changes_nobody_elses() {
    let mut catalog = Catalog::shipped().unwrap();
    let second = shipped("deploy").replacen("version = 1", "version = 2", 1);
    assert_eq!(add(&mut catalog, "shop", &second), "shop/deploy");
    let (shop, bank) = (catalog.of_tenant("shop"), catalog.of_tenant("bank"));
    let named = |catalog: &Catalog, name: &str, version: Option<u32>| {
        catalog.find(name, version).map(|it| format!("{}@{}", it.name, it.version))
    };
    for (catalog, name, version, expected) in [
        (&shop, "deploy", None, Some("shop/deploy@2")),
        (&shop, "deploy", Some(2), Some("shop/deploy@2")),
        (&shop, "deploy", Some(1), Some("deploy@1")),
        (&shop, "/deploy", None, Some("deploy@1")),
        (&bank, "deploy", None, Some("deploy@1")),
        (&bank, "deploy", Some(2), None),
    ] {
        assert_eq!(named(catalog, name, version).as_deref(), expected, "{name} {version:?}");
    }
}

#[test]
fn items_are_the_tenants_own_first_and_stay_what_they_were() {
    let mut catalog = Catalog::shipped().unwrap();
    let job = shipped("job");
    let before = job.replacen("name    = \"job\"", "name = \"before\"", 1);
    add(&mut catalog, "shop", &before);
    assert_eq!(add(&mut catalog, "shop", shipped("step")), "shop/step");
    let after = job.replacen("name    = \"job\"", "name = \"after\"", 1);
    add(&mut catalog, "shop", &after);
    let items = |catalog: &Catalog, name: &str| {
        catalog.latest(name).unwrap().items.iter().map(|kind| kind.name.to_string()).collect::<Vec<_>>()
    };
    let mut again = Catalog::default();
    let (kinds, runs): (Vec<_>, Vec<_>) = catalog.iter().partition(|it| it.items.is_empty());
    kinds.into_iter().chain(runs).for_each(|it| drop(again.add_stored(&toml(it)).unwrap()));
    for catalog in [&catalog, &again] {
        assert_eq!(items(catalog, "shop/before")[0], "step", "it was there alone");
        assert_eq!(items(catalog, "shop/after")[0], "shop/step");
        assert_eq!(items(catalog, "job")[0], "step");
    }
}

#[test]
fn a_file_names_no_tenant() {
    for name in ["shop/release", "/release", "release/"] {
        let text = RELEASE.replacen("name    = \"release\"", &format!("name = \"{name}\""), 1);
        for tenant in ["default", "shop"] {
            let problems = Catalog::shipped().unwrap().of_tenant(tenant).add(&text).unwrap_err();
            assert_eq!(problems.0[0].rule, "bad-name", "{problems}");
        }
    }
    let long = "x".repeat(250);
    let problems = Catalog::shipped().unwrap().of_tenant(&long).add(RELEASE).unwrap_err();
    assert_eq!(problems.0[0].rule, "bad-name", "{problems}");
}
