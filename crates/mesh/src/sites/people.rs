//! Contacts of circuits and bottlenecks, and members of audiences.

use super::model::{Audience, Bottleneck, Circuit, Contact, Role, Sites};

/// A contact with the site or the operator that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Person {
    pub mail: String,
    pub name: String,
    pub role: Role,
    /// Name of the site or of the operator.
    pub of: String,
}

/// Roles of the contacts of circuits and bottlenecks.
const NETWORK_ROLES: [Role; 2] = [Role::Technical, Role::Operator];

impl Sites {
    /// Returns the technical contacts and the operators of both sites of a circuit, and the contacts of its operator.
    pub fn circuit_contacts(&self, circuit: &Circuit) -> Vec<Person> {
        let mut people = People::default();
        circuit.between.iter().for_each(|site| people.add_site(self, site, &NETWORK_ROLES));
        people.add_operator(self, circuit.operator.as_deref(), &[]);
        people.sorted()
    }

    /// Returns the technical contacts and the operators of the sites of a bottleneck, and the contacts of the operators of its
    /// circuits.
    pub fn bottleneck_contacts(&self, bottleneck: &Bottleneck) -> Vec<Person> {
        let mut people = People::default();
        bottleneck.sites.iter().for_each(|site| people.add_site(self, site, &NETWORK_ROLES));
        for member in bottleneck.pairs.iter().flatten() {
            let site = self.host(member).map_or(member, |host| &host.site);
            people.add_site(self, site, &NETWORK_ROLES);
        }
        for circuit in self.circuits.iter().filter(|circuit| circuit.bottleneck.as_ref() == Some(&bottleneck.name)) {
            people.add_operator(self, circuit.operator.as_deref(), &[]);
        }
        people.sorted()
    }

    /// Returns the contacts of an audience by mail address, without its further addresses. An audience of all sites has the
    /// contacts of all operators, too.
    pub fn audience_members(&self, audience: &Audience) -> Vec<Person> {
        let mut people = People::default();
        if audience.sites.is_empty() {
            self.sites.iter().for_each(|site| people.add_site(self, &site.name, &audience.roles));
            let operators = self.operators.iter().map(|operator| operator.name.as_str());
            operators.for_each(|operator| people.add_operator(self, Some(operator), &audience.roles));
        }
        audience.sites.iter().for_each(|site| people.add_site(self, site, &audience.roles));
        people.sorted()
    }
}

/// Contacts found so far.
#[derive(Default)]
struct People(Vec<Person>);

impl People {
    fn add_site(&mut self, sites: &Sites, name: &str, roles: &[Role]) {
        if let Some(site) = sites.site(name) {
            self.add(&site.contacts, name, roles);
        }
    }

    fn add_operator(&mut self, sites: &Sites, name: Option<&str>, roles: &[Role]) {
        let operator = sites.operators.iter().find(|operator| Some(operator.name.as_str()) == name);
        if let Some(operator) = operator {
            self.add(&operator.contacts, &operator.name, roles);
        }
    }

    /// Adds the contacts with one of the roles; without roles, all contacts.
    fn add(&mut self, contacts: &[Contact], of: &str, roles: &[Role]) {
        let chosen = contacts.iter().filter(|contact| roles.is_empty() || roles.contains(&contact.role));
        self.0.extend(chosen.map(|Contact { name, mail, role }| Person {
            mail: mail.clone(),
            name: name.clone(),
            role: *role,
            of: of.to_owned(),
        }));
    }

    fn sorted(mut self) -> Vec<Person> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}
